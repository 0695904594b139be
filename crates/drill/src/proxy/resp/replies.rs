//! The downstream direction of a RESP connection: drops replies to repeated commands, and finds the
//! reply at which to cut the connection.

use std::sync::Arc;

use super::expected_replies::{ExpectedReplies, ExpectedReply};
use super::framer::{FrameSide, Framer, head_strings};
use crate::proxy::registry::InstalledToxic;

/// What to do with the current frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameAction {
    Push,
    Forward,
    Drop,
}

/// The result of processing a chunk from the server.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ReplyOutput {
    /// Bytes for the client.
    pub(in crate::proxy) out: Vec<u8>,
    /// Number of replies and pushes that ended in the chunk.
    pub(in crate::proxy) ended: u64,
    /// Number of them that were dropped.
    pub(in crate::proxy) swallowed: u64,
    /// The toxic that cuts the connection after `out`.
    pub(in crate::proxy) cut: Option<Arc<InstalledToxic>>,
    /// Whether replies cannot be matched to commands from here on.
    pub(in crate::proxy) lost_track: bool,
}

/// Matches the replies of one connection to its commands.
#[derive(Debug)]
pub(in crate::proxy) struct ReplyTracker {
    framer: Framer,
    current: Option<FrameAction>,
    passthrough: bool,
}

impl ReplyTracker {
    pub(in crate::proxy) fn new() -> Self {
        Self { framer: Framer::new(FrameSide::Replies), current: None, passthrough: false }
    }

    /// Processes a chunk from the server. `in_force` returns whether a toxic has not been removed.
    pub(in crate::proxy) fn process(
        &mut self,
        mut chunk: &[u8],
        ledger: &ExpectedReplies,
        in_force: impl Fn(&InstalledToxic) -> bool,
    ) -> ReplyOutput {
        let mut sorted = ReplyOutput::default();
        while let Some(first) = chunk.first().filter(|_| !self.passthrough) {
            let current = match self.current {
                Some(current) => current,
                // A RESP3 push may arrive between any two replies and answers no command.
                None if *first == b'>' => FrameAction::Push,
                None => match ledger.next_reply() {
                    None | Some(ExpectedReply::Forward) => FrameAction::Forward,
                    Some(ExpectedReply::Drop) => FrameAction::Drop,
                    Some(ExpectedReply::Cut(entry)) if in_force(&entry) => {
                        // The rest of the chunk is dropped on purpose: the server has executed the
                        // command, but the client never sees its reply.
                        sorted.cut = Some(entry);
                        return sorted;
                    }
                    Some(ExpectedReply::Cut(_)) => FrameAction::Forward,
                    Some(ExpectedReply::Pushes(_)) if matches!(first, b'-' | b'!') => {
                        ledger.record_subscription_reply(true);
                        FrameAction::Forward
                    }
                    Some(ExpectedReply::Pushes(_) | ExpectedReply::Unmatched) => {
                        self.stop_matching(ledger, &mut sorted);
                        break;
                    }
                },
            };
            self.current = Some(current);
            let Ok(frame) = self.framer.advance(chunk) else {
                tracing::warn!("a server does not speak RESP: its bytes are passed as they come");
                self.stop_matching(ledger, &mut sorted);
                break;
            };
            let (part, rest) = chunk.split_at(frame.used);
            chunk = rest;
            if current != FrameAction::Drop {
                sorted.out.extend_from_slice(part);
            }
            if frame.complete {
                sorted.ended += 1;
                sorted.swallowed += u64::from(current == FrameAction::Drop);
                let kind = head_strings(self.framer.head()).next().unwrap_or_default();
                if current == FrameAction::Push && kind.ends_with(b"subscribe") {
                    ledger.record_subscription_reply(false);
                }
                self.framer.next();
                self.current = None;
            }
        }
        sorted.out.extend_from_slice(chunk);
        sorted
    }

    fn stop_matching(&mut self, ledger: &ExpectedReplies, sorted: &mut ReplyOutput) {
        self.passthrough = true;
        sorted.lost_track = true;
        ledger.stop_matching();
    }
}
