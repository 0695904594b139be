//! What the keeper is asked to do, and the way to it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Entry;
use crate::life::Outcome;
use crate::policy::Class;
use crate::tools::Tools;
use crate::word::{Name, Token};

/// What the keeper is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Keep this hold from now on.
    Adopt(Box<Entry>),
    /// The work is done; tell how the release went, if anyone wants to know.
    Release {
        id: u64,
        answer: Option<oneshot::Sender<Outcome>>,
    },
    /// An acquire ended without a hold and may have left something behind.
    Undo {
        id: u64,
        name: Name,
        token: Token,
        class: Arc<Class>,
    },
    /// Classes have changed: look again. What is in force is not told here, so that nothing older can come later.
    Policies,
    /// The client shuts down: end every hold now, and each that comes later; releases and undos go on.
    EndAll,
    /// How much is left to do?
    Count(oneshot::Sender<Left>),
}

/// What a keeper still has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// Holds whose work is not finished.
    pub holds: usize,
    /// Releases on their way in the foreground.
    pub releasing: usize,
    /// Unconfirmed releases that the collector works on.
    pub debts: usize,
    /// Undos of ambiguous acquires.
    pub undos: usize,
    /// Undos whose time has not come: a hold has ended without giving its lease back, and an ask of it may still arrive when the
    /// lease is over. A shutdown does not wait for them.
    pub later: usize,
}

/// The way to the keeper.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(super) sender: mpsc::UnboundedSender<Command>,
    /// For a hold that comes when the keeper is gone.
    pub(super) tools: Tools,
}

impl Handle {
    pub(crate) fn send(&self, command: Command) {
        // A keeper that is gone has marked every hold lost on its way out. One that comes too late must not believe that
        // somebody renews it.
        if let Err(mpsc::error::SendError(Command::Adopt(mut entry))) = self.sender.send(command) {
            super::lose(&self.tools, &mut entry);
        }
    }
}
