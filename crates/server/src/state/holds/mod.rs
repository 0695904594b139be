//! Daemon-kept holds: the daemon holds and renews the lease, the client only sends heartbeats.
//!
//! A hold is a `Hold` in a map. Each heartbeat response tells the client how long it may work
//! without another heartbeat. The daemon ends the hold only after that time has passed for the
//! client. So no other client is granted the name while it still works.

mod ended_holds;
#[cfg(test)]
mod heartbeat_props;
mod refusal;
mod registry;
mod resume;
mod saved_holds;
mod token_source;
mod watch_task;

use leasehold::{Holder, Name};
use leasehold_core::Token;
use leasehold_core::rng::RandomExt;

pub(crate) use refusal::{NO_SUCH_HOLD, no_such_hold};
pub(crate) use registry::{HoldEntry, HoldKey, Holds, ReserveOutcome};
pub(crate) use resume::resume_holds;
pub(crate) use saved_holds::SavedHold;
pub(crate) use token_source::HoldTokenSource;
pub(crate) use watch_task::watch_holds;

use crate::auth::Principal;
use crate::problem::Refusal;
use crate::state::app::App;

/// A random id that distinguishes one attempt to acquire from the next.
pub(crate) fn new_attempt_id(app: &App) -> String {
    format!("{:032x}", app.random.wide())
}

/// The token of this attempt. Each attempt has its own: the previous one may still be undone in the
/// background, and that undo must not release this attempt's lease.
pub(crate) fn attempt_token(app: &App, row: &SavedHold, attempt: &str) -> Result<Token, Refusal> {
    let (name, holder) = (Name::new(&row.name)?, Holder::new(&row.holder)?);
    let key = format!("hold {} {attempt}", row.id);
    let owner = Principal::new(&row.owner, []);
    app.derive_token(&owner, &name, &key, &holder, &row.class)
}
