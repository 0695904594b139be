//! Daemon-kept holds: the daemon's own client holds and renews, the client only says that it is still there.
//!
//! A hold is a `Hold` in a map. Its client learns with every heartbeat for how long it may go on without another; the
//! daemon ends the hold only after that time has passed for the client, so nobody else is granted what it still works under.

mod book;
mod keep;
mod resume;
mod routes;
mod saved;
#[cfg(test)]
mod told_time;
mod wire;

pub(crate) use book::Holds;
pub(crate) use keep::watch;
pub(crate) use resume::resume;
pub(crate) use routes::*;
use wire::HoldAsk;
pub(crate) use wire::HoldView;

/// What the token of a hold is made from. Each request for it has one of its own: what the one before may have been granted
/// is perhaps still being given back, and that must not end this one's lease.
fn key(id: &str, attempt: &str) -> String {
    // One that a daemon of an earlier version has begun had none.
    format!("hold {id} {attempt}").trim_end().to_owned()
}
