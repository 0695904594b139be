//! The tokens with which a hold re-acquires its name. Each is derived like the first one, from an
//! attempt id that the database keeps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold::Fence;
use leasehold_core::{Token, TokenSource};

use super::saved_holds::SavedHold;
use crate::state::app::App;

/// The token source of one hold.
#[derive(Debug)]
pub(crate) struct HoldTokenSource {
    /// Weak: the app owns the hold, so a strong reference would be a cycle.
    app: Weak<App>,
    /// The hold as stored in the database, or as it would be stored.
    row: SavedHold,
    /// The latest attempt id and the token derived from it.
    latest: Mutex<(String, Token)>,
}

impl HoldTokenSource {
    /// The token source of a hold that acquires, or was granted, with `token` first.
    pub(crate) fn new(app: &Arc<App>, row: SavedHold, token: Token) -> Arc<Self> {
        Arc::new(Self { app: Arc::downgrade(app), latest: Mutex::new((row.attempt.clone(), token)), row })
    }

    fn latest(&self) -> MutexGuard<'_, (String, Token)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenSource for HoldTokenSource {
    fn next_token(&self) -> Option<Token> {
        let app = self.app.upgrade()?;
        let attempt = super::new_attempt_id(&app);
        let token = super::attempt_token(&app, &self.row, &attempt).ok()?;
        *self.latest() = (attempt, token.clone());
        Some(token)
    }

    fn token_adopted(&self, token: &Token, fence: Fence) {
        let (attempt, made) = self.latest().clone();
        // The attempt id is known only for the latest token, so nothing is stored for another one.
        if let Some(app) = self.app.upgrade().filter(|_| made == *token) {
            app.holds.save_retaken(SavedHold { attempt, fence, ..self.row.clone() });
        }
    }
}
