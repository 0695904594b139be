//! Daemon-kept holds: the daemon's own client holds and renews, the client only says that it is still there.
//!
//! A hold is a `Hold` in a map. Its client learns with every heartbeat for how long it may go on without another; the
//! daemon ends the hold only after that time has passed for the client, so nobody else is granted what it still works under.

mod book;
mod keep;
mod resume;
mod routes;
mod wire;

pub(crate) use book::Holds;
pub(crate) use keep::watch;
pub(crate) use resume::resume;
pub(crate) use routes::*;
use wire::HoldAsk;
pub(crate) use wire::HoldView;
