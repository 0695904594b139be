//! Daemon-kept holds: the daemon holds and renews the lease, the client only sends heartbeats.
//!
//! A hold is a `Hold` in a map. Each heartbeat response tells the client how long it may work
//! without another heartbeat. The daemon ends the hold only after that time has passed for the
//! client. So no other client is granted the name while it still works.

#[cfg(test)]
mod heartbeat_props;
mod refusal;
mod registry;
mod resume;
mod routes;
mod saved_holds;
mod token_source;
mod watch_task;
mod wire;

use leasehold::{Holder, Name};
use leasehold_core::Token;
use leasehold_core::rng::RandomExt;

pub(crate) use registry::Holds;
pub(crate) use resume::resume_holds;
pub(crate) use routes::*;
use saved_holds::SavedHold;
pub(crate) use watch_task::watch_holds;
use wire::HoldAsk;
pub(crate) use wire::HoldView;

use crate::api::problem::Refusal;
use crate::auth::Principal;
use crate::state::app::App;

/// A random id that distinguishes one attempt to acquire from the next.
fn new_attempt_id(app: &App) -> String {
    format!("{:032x}", app.random.wide())
}

/// The token of this attempt. Each attempt has its own: the previous one may still be undone in the
/// background, and that undo must not release this attempt's lease.
fn attempt_token(app: &App, row: &SavedHold, attempt: &str) -> Result<Token, Refusal> {
    let (name, holder) = (Name::new(&row.name)?, Holder::new(&row.holder)?);
    let key = format!("hold {} {attempt}", row.id);
    let owner = Principal::new(&row.owner, []);
    app.derive_token(&owner, &name, &key, &holder, &row.class)
}
