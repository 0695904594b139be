//! Commands to the keeper and the handle that sends them.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::HoldEntry;
use crate::context::Context;
use crate::life::ReleaseOutcome;
use crate::policy::Class;
use crate::types::{Name, Token};

/// A command to the keeper.
#[derive(Debug)]
pub(crate) enum KeeperCommand {
    /// Take charge of this hold.
    Adopt(Box<HoldEntry>),
    /// The work is done: release, and send the outcome if a sender is given.
    Release { id: u64, answer: Option<oneshot::Sender<ReleaseOutcome>> },
    /// An acquire ended without a hold but may have left a lease or a waiter in the store.
    Undo { id: u64, name: Name, token: Token, class: Arc<Class> },
    /// Classes have changed. The keeper reads the classes in force itself, so that a delayed
    /// command cannot apply an old policy.
    PoliciesChanged,
    /// The client shuts down: end every hold, also later ones. Releases and undos continue.
    EndAll,
    /// Count the pending work.
    Count(oneshot::Sender<PendingWork>),
}

/// The work that a keeper has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PendingWork {
    /// Holds whose work is not finished.
    pub holds: usize,
    /// Releases in the foreground.
    pub releasing: usize,
    /// Unconfirmed releases that continue in the background.
    pub debts: usize,
    /// Undos of acquires with unknown outcome.
    pub undos: usize,
    /// Undos that start only when a lease has expired. Such a hold ended without a release, and a
    /// late request of its token may still arrive. A shutdown does not wait for them.
    pub deferred_undos: usize,
}

/// Sends commands to the keeper.
#[derive(Debug, Clone)]
pub(crate) struct KeeperHandle {
    pub(super) sender: mpsc::UnboundedSender<KeeperCommand>,
    // Needed to mark a hold as lost when the keeper has already ended.
    pub(super) context: Context,
}

impl KeeperHandle {
    pub(crate) fn send(&self, command: KeeperCommand) {
        // The keeper marks its holds as lost when it ends. A hold that arrives later must not
        // believe that a task renews it.
        if let Err(mpsc::error::SendError(KeeperCommand::Adopt(mut entry))) = self.sender.send(command) {
            super::mark_lost(&self.context, &mut entry);
        }
    }
}
