//! Redis's protocol, as far as a proxy has to understand it: where commands and replies begin and end, and which reply
//! belongs to which command.

mod commands;
mod framer;
mod ledger;
mod replies;

pub(super) use commands::{Commands, Verdict};
pub use framer::{Frame, Framer, Malformed, Side};
pub(super) use ledger::Ledger;
pub(super) use replies::Replies;
