//! The part of Redis's protocol that the proxy parses: the ends of commands and replies, and which
//! reply belongs to which command.

mod commands;
mod expected_replies;
mod framer;
mod replies;

pub(super) use commands::{CommandFaults, CommandTracker};
pub(super) use expected_replies::ExpectedReplies;
pub use framer::{FrameScan, FrameSide, Framer, MalformedFrame};
pub(super) use replies::ReplyTracker;
