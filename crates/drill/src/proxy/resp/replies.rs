//! The downstream direction of a RESP connection: keeps replies to repeated commands from the client, and finds the one at
//! which the connection is cut.

use std::sync::Arc;

use super::framer::{Framer, Side, strings};
use super::ledger::{Ledger, Owed};
use crate::proxy::catalog::Entry;

/// The frame under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    Push,
    Pass,
    Swallow,
}

/// What became of some bytes from the server.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Sorted {
    /// What the client is to get.
    pub(in crate::proxy) out: Vec<u8>,
    /// Replies and pushes that ended.
    pub(in crate::proxy) ended: u64,
    /// Those of them that were kept back.
    pub(in crate::proxy) swallowed: u64,
    /// The toxic that cuts here, after `out`.
    pub(in crate::proxy) cut: Option<Arc<Entry>>,
    /// From here on replies cannot be told apart.
    pub(in crate::proxy) lost_track: bool,
}

/// Follows the replies of one connection.
#[derive(Debug)]
pub(in crate::proxy) struct Replies {
    framer: Framer,
    current: Option<Current>,
    raw: bool,
}

impl Replies {
    pub(in crate::proxy) fn new() -> Self {
        Self {
            framer: Framer::new(Side::Replies),
            current: None,
            raw: false,
        }
    }

    /// Takes what the server sent. `in_force` says whether a toxic still is.
    pub(in crate::proxy) fn take(
        &mut self,
        mut chunk: &[u8],
        ledger: &Ledger,
        in_force: impl Fn(&Entry) -> bool,
    ) -> Sorted {
        let mut sorted = Sorted::default();
        while let Some(first) = chunk.first().filter(|_| !self.raw) {
            let current = match self.current {
                Some(current) => current,
                None if *first == b'>' => Current::Push,
                None => match ledger.reply() {
                    None | Some(Owed::Pass) => Current::Pass,
                    Some(Owed::Swallow) => Current::Swallow,
                    Some(Owed::Cut(entry)) if in_force(&entry) => {
                        sorted.cut = Some(entry);
                        return sorted;
                    }
                    Some(Owed::Cut(_)) => Current::Pass,
                    Some(Owed::Pushes(_)) if matches!(first, b'-' | b'!') => {
                        ledger.subscribed(true);
                        Current::Pass
                    }
                    Some(Owed::Pushes(_) | Owed::Anything) => {
                        self.lose_track(ledger, &mut sorted);
                        break;
                    }
                },
            };
            self.current = Some(current);
            let Ok(frame) = self.framer.advance(chunk) else {
                tracing::warn!("a server does not speak RESP: its bytes are passed as they come");
                self.lose_track(ledger, &mut sorted);
                break;
            };
            let (part, rest) = chunk.split_at(frame.used);
            chunk = rest;
            if current != Current::Swallow {
                sorted.out.extend_from_slice(part);
            }
            if frame.complete {
                sorted.ended += 1;
                sorted.swallowed += u64::from(current == Current::Swallow);
                let kind = strings(self.framer.head()).next().unwrap_or_default();
                if current == Current::Push && kind.ends_with(b"subscribe") {
                    ledger.subscribed(false);
                }
                self.framer.next();
                self.current = None;
            }
        }
        sorted.out.extend_from_slice(chunk);
        sorted
    }

    fn lose_track(&mut self, ledger: &Ledger, sorted: &mut Sorted) {
        self.raw = true;
        sorted.lost_track = true;
        ledger.give_up();
    }
}
