//! Daemon-kept holds: the daemon's own client holds and renews, the client only says that it is still there.
//!
//! A hold is a `Hold` in a map. Its client learns with every heartbeat for how long it may go on without another; the
//! daemon ends the hold only after that time has passed for the client, so nobody else is granted what it still works under.

mod book;
mod heirs;
mod keep;
mod refusal;
mod resume;
mod routes;
mod saved;
#[cfg(test)]
mod told_time;
mod wire;

use leasehold::leasehold_core::Token;
use leasehold::leasehold_core::rng::RandomExt;
use leasehold::{Holder, Name};

pub(crate) use book::Holds;
pub(crate) use keep::watch;
pub(crate) use resume::resume;
pub(crate) use routes::*;
use saved::Row;
use wire::HoldAsk;
pub(crate) use wire::HoldView;

use crate::app::App;
use crate::auth::Principal;
use crate::problem::Refusal;

/// What tells one request for a lease from the next.
fn attempt(app: &App) -> String {
    format!("{:032x}", app.random.wide())
}

/// The token of this attempt to hold it. Each has one of its own: what the one before may have been granted is perhaps still
/// being given back, and that must not end this one's lease.
fn token(app: &App, row: &Row, attempt: &str) -> Result<Token, Refusal> {
    let (name, holder) = (Name::new(&row.name)?, Holder::new(&row.holder)?);
    // One that a daemon of an earlier version has begun had none.
    let key = format!("hold {} {attempt}", row.id);
    let owner = Principal::new(&row.owner, []);
    app.token_of(&owner, &name, key.trim_end(), &holder, &row.class)
}
