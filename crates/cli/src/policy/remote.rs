//! `leasehold policy set` and `history`, which only a running daemon can do.

use anyhow::bail;

use super::PolicyCommand;
use crate::args::{Form, Place};

/// Changes a field for a while.
pub(super) fn set(place: &Place, _command: &PolicyCommand) -> anyhow::Result<bool> {
    no_daemon(place, "change a policy")
}

/// Prints what was changed.
pub(super) fn history(place: &Place, _output: Form) -> anyhow::Result<bool> {
    no_daemon(place, "tell how policies were changed")
}

fn no_daemon(place: &Place, what: &str) -> anyhow::Result<bool> {
    bail!(
        "{} is a store, and only a running daemon can {what} for everyone at once\n\
         name a daemon with --store http://HOST:PORT, or change the policy file: programs and `run` pick it up within seconds",
        place.store()?
    )
}
