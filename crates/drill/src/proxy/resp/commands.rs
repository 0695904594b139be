//! The upstream direction of a RESP connection: splits the stream into commands, repeats some of
//! them, and records which replies to expect.

use std::sync::Arc;

use super::expected_replies::{ExpectedReplies, ExpectedReply};
use super::framer::{FrameSide, Framer, head_strings};
use crate::proxy::registry::InstalledToxic;

// A command is buffered to repeat it. Longer ones are forwarded once, so memory per connection
// stays bounded.
const MAX_REPEAT_BYTES: usize = 256 << 10;

/// The faults that apply to a complete command.
#[derive(Debug, Default)]
pub(in crate::proxy) struct CommandFaults {
    /// Send it twice.
    pub(in crate::proxy) repeat: bool,
    /// Cut the connection at its reply, for this toxic.
    pub(in crate::proxy) cut: Option<Arc<InstalledToxic>>,
}

/// Parses the commands of one connection.
#[derive(Debug)]
pub(in crate::proxy) struct CommandTracker {
    framer: Framer,
    /// The current command so far, while it is short enough to be repeated.
    copy: Vec<u8>,
    too_long: bool,
    /// The stream is not RESP: bytes are forwarded without parsing.
    passthrough: bool,
}

impl CommandTracker {
    pub(in crate::proxy) fn new() -> Self {
        Self {
            framer: Framer::new(FrameSide::Commands),
            copy: Vec::new(),
            too_long: false,
            passthrough: false,
        }
    }

    /// Takes a chunk from the client. Returns the bytes for the server and the number of commands
    /// that ended in the chunk. Calls `judge` for each command with its name and whether it can be
    /// repeated.
    pub(in crate::proxy) fn process(
        &mut self,
        mut chunk: &[u8],
        ledger: &ExpectedReplies,
        mut judge: impl FnMut(&[u8], bool) -> CommandFaults,
    ) -> (Vec<u8>, u64) {
        let (mut out, mut ended) = (Vec::with_capacity(chunk.len()), 0);
        while !chunk.is_empty() && !self.passthrough {
            let Ok(frame) = self.framer.advance(chunk) else {
                tracing::warn!("a client does not speak RESP: its bytes are passed as they come");
                self.passthrough = true;
                ledger.expect(ExpectedReply::Unmatched);
                break;
            };
            let (part, rest) = chunk.split_at(frame.used);
            chunk = rest;
            out.extend_from_slice(part);
            self.keep_copy(part);
            if frame.complete {
                ended += 1;
                self.finish_command(&mut out, ledger, &mut judge);
                self.framer.next();
                self.copy.clear();
                self.too_long = false;
            }
        }
        out.extend_from_slice(chunk);
        (out, ended)
    }

    fn keep_copy(&mut self, part: &[u8]) {
        self.too_long |= self.copy.len() + part.len() > MAX_REPEAT_BYTES;
        if self.too_long {
            self.copy = Vec::new();
        } else {
            self.copy.extend_from_slice(part);
        }
    }

    fn finish_command(
        &mut self,
        out: &mut Vec<u8>,
        ledger: &ExpectedReplies,
        judge: &mut impl FnMut(&[u8], bool) -> CommandFaults,
    ) {
        let head = self.framer.head();
        let mut words = head_strings(head).map(<[u8]>::to_ascii_uppercase);
        // `*0`, `*-1` and an empty line are no commands: the server sends no reply.
        let Some(name) = words.next() else { return };
        if !ledger.is_matching() {
            return;
        }
        if name.ends_with(b"SUBSCRIBE") {
            // Answered by one push per channel (RESP3), not by one reply: faults at such a command
            // would lose count.
            ledger.expect(ExpectedReply::Pushes(channel_count(head)));
            return;
        }
        let replies_differ = match name.as_slice() {
            b"MONITOR" | b"SYNC" | b"PSYNC" => true,
            b"CLIENT" => words.next().is_some_and(|word| word == b"REPLY"),
            _ => false,
        };
        if replies_differ {
            ledger.expect(ExpectedReply::Unmatched);
            return;
        }
        // A second QUIT would find the connection closed.
        let repeatable = !self.too_long && name != b"QUIT";
        let verdict =
            if ledger.can_alter_commands() { judge(&name, repeatable) } else { CommandFaults::default() };
        ledger.expect(verdict.cut.map_or(ExpectedReply::Forward, ExpectedReply::Cut));
        if verdict.repeat {
            out.extend_from_slice(&self.copy);
            ledger.expect(ExpectedReply::Drop);
        }
    }
}

/// Number of channels in a subscription command. The server sends one answer for each, and at least
/// one.
fn channel_count(head: &[u8]) -> u64 {
    let size = head.split(|byte| *byte == b'\r').next().and_then(|line| line.strip_prefix(b"*"));
    let size = size.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let words = || u64::try_from(head_strings(head).count()).unwrap_or(u64::MAX);
    size.unwrap_or_else(words).saturating_sub(1).max(1)
}
