//! The upstream direction of a RESP connection: tells commands apart, repeats some, and writes down which replies are owed.

use std::sync::Arc;

use super::framer::{Framer, Side, strings};
use super::ledger::{Ledger, Owed};
use crate::proxy::catalog::Entry;

/// The longest command that is repeated: it has to be kept for that.
const MAX_COPY: usize = 256 << 10;

/// What is to be done to a command that has come in whole.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Verdict {
    /// Sent once more.
    pub(in crate::proxy) repeat: bool,
    /// The connection is cut at its reply.
    pub(in crate::proxy) cut: Option<Arc<Entry>>,
}

/// Follows the commands of one connection.
#[derive(Debug)]
pub(in crate::proxy) struct Commands {
    framer: Framer,
    /// The command under way, as long as it is short enough to be repeated.
    copy: Vec<u8>,
    /// It is not.
    too_long: bool,
    /// The stream is not RESP, or not any more.
    raw: bool,
}

impl Commands {
    pub(in crate::proxy) fn new() -> Self {
        Self {
            framer: Framer::new(Side::Commands),
            copy: Vec::new(),
            too_long: false,
            raw: false,
        }
    }

    /// Takes what the client sent and answers with what the server is to get, and how many commands ended in it.
    /// `judge` is asked about each command by its name, and whether it could be repeated.
    pub(in crate::proxy) fn take(
        &mut self,
        mut chunk: &[u8],
        ledger: &Ledger,
        mut judge: impl FnMut(&[u8], bool) -> Verdict,
    ) -> (Vec<u8>, u64) {
        let (mut out, mut ended) = (Vec::with_capacity(chunk.len()), 0);
        while !chunk.is_empty() && !self.raw {
            let Ok(frame) = self.framer.advance(chunk) else {
                tracing::warn!("a client does not speak RESP: its bytes are passed as they come");
                self.raw = true;
                ledger.owe(Owed::Anything);
                break;
            };
            let (part, rest) = chunk.split_at(frame.used);
            chunk = rest;
            out.extend_from_slice(part);
            self.keep(part);
            if frame.complete {
                ended += 1;
                self.ended(&mut out, ledger, &mut judge);
                self.framer.next();
                self.copy.clear();
                self.too_long = false;
            }
        }
        out.extend_from_slice(chunk);
        (out, ended)
    }

    fn keep(&mut self, part: &[u8]) {
        self.too_long |= self.copy.len() + part.len() > MAX_COPY;
        if self.too_long {
            self.copy = Vec::new();
        } else {
            self.copy.extend_from_slice(part);
        }
    }

    fn ended(&mut self, out: &mut Vec<u8>, ledger: &Ledger, judge: &mut impl FnMut(&[u8], bool) -> Verdict) {
        let head = self.framer.head();
        let mut words = strings(head).map(<[u8]>::to_ascii_uppercase);
        // `*0`, `*-1` and an empty line are no commands: the server says nothing.
        let Some(name) = words.next() else { return };
        if !ledger.tracks() {
            return;
        }
        if name.ends_with(b"SUBSCRIBE") {
            ledger.owe(Owed::Pushes(channels(head)));
            return;
        }
        let replies_differ = match name.as_slice() {
            b"MONITOR" | b"SYNC" | b"PSYNC" => true,
            b"CLIENT" => words.next().is_some_and(|word| word == b"REPLY"),
            _ => false,
        };
        if replies_differ {
            ledger.owe(Owed::Anything);
            return;
        }
        // A second QUIT finds the connection closed.
        let repeatable = !self.too_long && name != b"QUIT";
        let verdict = if ledger.in_step() {
            judge(&name, repeatable)
        } else {
            Verdict::default()
        };
        ledger.owe(verdict.cut.map_or(Owed::Pass, Owed::Cut));
        if verdict.repeat {
            out.extend_from_slice(&self.copy);
            ledger.owe(Owed::Swallow);
        }
    }
}

/// How many channels a subscription names; one answer comes for each, and at least one.
fn channels(head: &[u8]) -> u64 {
    let size = head
        .split(|byte| *byte == b'\r')
        .next()
        .and_then(|line| line.strip_prefix(b"*"));
    let size = size.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let words = || u64::try_from(strings(head).count()).unwrap_or(u64::MAX);
    size.unwrap_or_else(words).saturating_sub(1).max(1)
}
