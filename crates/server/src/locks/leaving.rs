//! What a caller who has gone, or whom nobody could answer, may have got is taken back, if nobody could ask for it again.
//!
//! A caller with an id or a token of its own can ask again: over another connection, while the daemon has not noticed that the first
//! one is cut off, or long before a first request that was held up arrives at all. What were taken back for one question
//! could be what the other was granted, here or through another daemon. So such a caller only loses its place in the queue; what
//! it was granted waits for it, and then runs out by itself.

use std::sync::Arc;

use leasehold::store::Giving;

use super::acquire::Asking;
use crate::app::App;

/// One question under way.
pub(super) struct Leaving {
    app: Arc<App>,
    giving: Option<Giving>,
}

impl Leaving {
    /// Of this caller.
    pub(super) fn new(app: &Arc<App>, asking: &Asking) -> Self {
        let (name, token) = (&asking.ask.name, &asking.ask.token);
        Self {
            app: Arc::clone(app),
            giving: match (asking.orphan, asking.wait) {
                (true, _) => Some(Giving::undo(name.clone(), token.clone())),
                (false, Some(_)) => Some(Giving::place(name.clone(), token.clone())),
                (false, None) => None,
            },
        }
    }

    /// The caller knows.
    pub(super) fn stay(&mut self) {
        self.giving = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(giving) = self.giving.take() else { return };
        let app = Arc::clone(&self.app);
        tokio::spawn(async move {
            let within = super::WITHIN;
            if let Err(failure) = app.within(within, app.store().release(&giving, within)).await {
                // It runs out by itself then.
                tracing::warn!(%failure, "what a caller left behind could not be taken back");
            }
        });
    }
}
