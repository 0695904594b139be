//! One hold as the keeper knows it.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::gate::Permit;
use crate::hold::Shared;
use crate::life::{Life, Outcome, State};
use crate::request::{Heirs, Tweaks};
use crate::store::Busy;
use crate::word::{Name, Token};

/// A machine and what it works with.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) life: Life,
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) shared: Arc<Shared>,
    pub(crate) permit: Option<Permit>,
    pub(crate) tweaks: Tweaks,
    /// For the lease that replaces a lost one; the same until its fate is known.
    pub(crate) heal_token: Option<Token>,
    /// Who makes those, if somebody does.
    pub(crate) heirs: Option<Arc<dyn Heirs>>,
    /// Who wants to know how the release went.
    pub(super) waiting: Vec<oneshot::Sender<Outcome>>,
    /// What they are told, once it is known.
    pub(super) outcome: Option<Outcome>,
    /// The timer that is set for it.
    pub(super) wake: Moment,
}

impl Entry {
    pub(crate) fn new(id: u64, life: Life, name: Name, token: Token, permit: Option<Permit>) -> Self {
        let shared = Shared::new(&life);
        Self {
            id,
            life,
            name,
            token,
            shared,
            permit,
            tweaks: Tweaks::default(),
            heal_token: None,
            heirs: None,
            waiting: Vec::new(),
            outcome: None,
            wake: Moment::FAR,
        }
    }

    /// The lease that is there is the one that this entry still has to give back. An undo does not know what it was granted,
    /// if anything: to whom must do.
    pub(super) fn owes(&self, there: &Busy) -> bool {
        match self.life.state() {
            State::Owing { undo: true, .. } => there.holder == self.token.holder(),
            State::Owing { .. } => there.fence.is_some() && there.fence == self.life.fence(),
            _ => false,
        }
    }
}
