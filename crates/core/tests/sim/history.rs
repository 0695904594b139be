//! The history of a run: always as a hash, and as text lines on demand.

use crate::clock::Nanos;

/// FNV-1a over all events: two runs with the same hash are the same run.
pub(crate) struct History {
    hash: u64,
    keep: bool,
    pub(crate) lines: Vec<String>,
}

impl History {
    pub(crate) fn new(keep: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, keep, lines: Vec::new() }
    }

    /// Records an event of `who`; `text` is only called if lines are kept.
    pub(crate) fn note(
        &mut self,
        at: Nanos,
        kind: &'static str,
        who: (usize, u64),
        more: u64,
        text: impl FnOnce() -> String,
    ) {
        let words = [at, who.0 as u64, who.1, more];
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        for byte in kind.bytes().chain(bytes) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.keep {
            let seconds = at as f64 / 1e9;
            self.lines.push(format!("{seconds:>12.6} {}/{:<3} {kind:<8} {}", who.0, who.1, text()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
