//! One hold in the keeper.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::gate::Permit;
use crate::hold::SharedHold;
use crate::life::{HoldMachine, HoldState, ReleaseOutcome};
use crate::request::{RequestOptions, TokenSource};
use crate::store::BusyLease;
use crate::types::{Name, Token};

/// A machine with the data that its effects need.
#[derive(Debug)]
pub(crate) struct HoldEntry {
    pub(crate) id: u64,
    pub(crate) life: HoldMachine,
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) shared: Arc<SharedHold>,
    pub(crate) permit: Option<Permit>,
    pub(crate) options: RequestOptions,
    // The token of the lease that replaces a lost one; unchanged until its outcome is known.
    pub(crate) heal_token: Option<Token>,
    pub(crate) token_source: Option<Arc<dyn TokenSource>>,
    // Callers of `Hold::release` that wait for the outcome.
    pub(super) release_waiters: Vec<oneshot::Sender<ReleaseOutcome>>,
    pub(super) outcome: Option<ReleaseOutcome>,
    // The timer that is set for this entry; `FAR` if none is.
    pub(super) wake_at: Moment,
}

impl HoldEntry {
    pub(crate) fn new(id: u64, life: HoldMachine, name: Name, token: Token, permit: Option<Permit>) -> Self {
        let shared = SharedHold::new(&life);
        Self {
            id,
            life,
            name,
            token,
            shared,
            permit,
            options: RequestOptions::default(),
            heal_token: None,
            token_source: None,
            release_waiters: Vec::new(),
            outcome: None,
            wake_at: Moment::FAR,
        }
    }

    /// Returns true if `there` is the lease that this entry still has to release.
    pub(super) fn is_debt_for(&self, there: &BusyLease) -> bool {
        match self.life.state() {
            // An undo does not know its fence, because the grant's response was lost; the holder
            // must do.
            HoldState::Debt { undo: true, .. } => there.holder == self.token.holder(),
            HoldState::Debt { .. } => there.fence.is_some() && there.fence == self.life.fence(),
            _ => false,
        }
    }
}
