//! One direction of one connection as a pure machine: bytes and moments in, what to do next out. No I/O, no clock, no task,
//! so every delay can be tested to the nanosecond.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::rng::{Random, RandomExt, SeededRandom};

use super::active::{Active, branch};
use super::catalog::Entry;
use super::resp::Verdict;
use super::toxic::{Cut, Kind, Repeat, Stream};

/// How a connection is ended by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// FIN.
    Close,
    /// RST.
    Reset,
}

/// What a lane wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Send so many bytes of [`Lane::piece`].
    Send(usize),
    /// Nothing, until something comes in or, if given, until then.
    Wait(Option<Moment>),
    /// All is sent and the source has ended: pass the end on.
    Finish,
    /// End the connection, both ways.
    End(End),
}

/// Something in the queue.
#[derive(Debug)]
enum Item {
    /// Bytes that came in at a moment, and the dice rolled for them. The first `sent` are gone.
    Data {
        arrived: Moment,
        roll: u64,
        bytes: Vec<u8>,
        sent: usize,
    },
    /// The connection ends here.
    Cut(End),
}

/// The part of the queue's head that goes out next, and when.
#[derive(Debug, Clone, Copy)]
struct Piece {
    len: usize,
    due: Moment,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Lane {
    stream: Stream,
    seed: u64,
    buffer: usize,
    active: Vec<Active>,
    dice: SeededRandom,
    queue: VecDeque<Item>,
    queued: usize,
    piece: Option<Piece>,
    sent: u64,
    /// When the bandwidth used so far is paid for.
    paid: Moment,
    /// When the slicer lets the next piece go.
    gap: Moment,
    ended: Option<Moment>,
    held: bool,
    cut: bool,
    effects: Vec<Arc<Entry>>,
}

impl Lane {
    /// `seed` is this connection's own; at most `buffer` bytes are asked for before some are sent.
    pub(super) fn new(stream: Stream, seed: u64, buffer: usize) -> Self {
        Self {
            stream,
            seed,
            buffer,
            active: Vec::new(),
            dice: SeededRandom::new(branch(seed, (stream as u64) << 1)),
            queue: VecDeque::new(),
            queued: 0,
            piece: None,
            sent: 0,
            paid: Moment::ZERO,
            gap: Moment::ZERO,
            ended: None,
            held: false,
            cut: false,
            effects: Vec::new(),
        }
    }

    /// These toxics are in force from `now` on; those that were already stay as they are.
    pub(super) fn apply(&mut self, entries: &[Arc<Entry>], now: Moment) {
        let mut before = std::mem::take(&mut self.active);
        for entry in entries.iter().filter(|entry| entry.toxic.stream == self.stream) {
            let known = before
                .iter()
                .position(|active| active.entry.serial == entry.serial);
            self.active.push(if let Some(at) = known {
                before.swap_remove(at)
            } else {
                Active::new(entry, self.seed, now, self.sent)
            });
        }
        // What is on its way out is planned anew, so a removed delay ends at once.
        self.piece = None;
        self.paid = self.paid.min(now);
        self.gap = self.gap.min(now);
        let held = self
            .hits()
            .any(|active| matches!(active.entry.toxic.kind, Kind::Timeout { .. }));
        self.held = held;
    }

    fn hits(&self) -> impl Iterator<Item = &Active> {
        self.active.iter().filter(|active| active.hit)
    }

    /// Whether more may be read: there is room, and no toxic holds the data back.
    pub(super) fn wants_read(&self) -> bool {
        self.ended.is_none() && !self.held && !self.cut && self.queued < self.buffer
    }

    /// Bytes came in.
    pub(super) fn push(&mut self, bytes: Vec<u8>, now: Moment) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            let roll = self.dice.bits();
            self.queue.push_back(Item::Data {
                arrived: now,
                roll,
                bytes,
                sent: 0,
            });
        }
    }

    /// The connection ends after what has come in so far.
    pub(super) fn cut(&mut self, end: End) {
        self.cut = true;
        self.queue.push_back(Item::Cut(end));
    }

    /// The source has ended.
    pub(super) fn end(&mut self, now: Moment) {
        self.ended.get_or_insert(now);
    }

    /// The toxics that have had an effect here for the first time since this was last asked.
    pub(super) fn effects(&mut self) -> std::vec::Drain<'_, Arc<Entry>> {
        self.effects.drain(..)
    }

    /// What to do now.
    pub(super) fn next(&mut self, now: Moment) -> Next {
        let mut alarm = Moment::FAR;
        for at in 0..self.active.len() {
            let Some(active) = self.active.get(at).filter(|active| active.hit) else {
                continue;
            };
            let (since, done) = (active.since, self.sent - active.base);
            let end = match active.entry.toxic.kind {
                Kind::ResetPeer { timeout } => Some((since + timeout, End::Reset)),
                Kind::Timeout {
                    timeout: Duration::ZERO,
                } => None,
                Kind::Timeout { timeout } => Some((since + timeout, End::Close)),
                Kind::LimitData { bytes } => (done >= bytes).then_some((now, End::Close)),
                _ => continue,
            };
            if matches!(active.entry.toxic.kind, Kind::Timeout { .. }) {
                self.note(at);
            }
            match end {
                Some((moment, end)) if now >= moment => {
                    self.note(at);
                    return Next::End(end);
                }
                Some((moment, _)) => alarm = alarm.min(moment),
                None => {}
            }
        }
        match self.flow(now) {
            _ if self.held => Next::Wait(Some(alarm).filter(|at| *at < Moment::FAR)),
            Next::Wait(due) => {
                Next::Wait(Some(due.unwrap_or(Moment::FAR).min(alarm)).filter(|at| *at < Moment::FAR))
            }
            next => next,
        }
    }

    /// What to do as far as the queue is concerned.
    fn flow(&mut self, now: Moment) -> Next {
        if self.held {
            return Next::Wait(None);
        }
        match (self.queue.front(), self.ended) {
            (Some(Item::Cut(end)), _) => Next::End(*end),
            (Some(Item::Data { .. }), _) => {
                let piece = self.piece.unwrap_or_else(|| self.plan(now));
                self.piece = Some(piece);
                if now >= piece.due {
                    Next::Send(piece.len)
                } else {
                    Next::Wait(Some(piece.due))
                }
            }
            (None, Some(ended)) => {
                let mut due = ended;
                for at in 0..self.active.len() {
                    if let Some(Kind::SlowClose { delay }) = self.kind(at) {
                        due = due + delay;
                        self.note(at);
                    }
                }
                if now >= due {
                    Next::Finish
                } else {
                    Next::Wait(Some(due))
                }
            }
            (None, None) => Next::Wait(None),
        }
    }

    /// How much of the queue's head goes next, and when.
    fn plan(&mut self, now: Moment) -> Piece {
        let Some(Item::Data {
            arrived,
            roll,
            bytes,
            sent,
        }) = self.queue.front()
        else {
            return Piece {
                len: 0,
                due: Moment::FAR,
            };
        };
        let (mut due, mut len, roll) = (*arrived, bytes.len() - sent, *roll);
        let mut rate = u64::MAX;
        for at in 0..self.active.len() {
            let Some(kind) = self.kind(at) else { continue };
            match kind {
                Kind::Latency { latency, jitter } => {
                    let serial = self.active.get(at).map_or(0, |active| active.entry.serial);
                    let spread = u64::try_from(jitter.as_nanos())
                        .unwrap_or(u64::MAX)
                        .saturating_mul(2);
                    let drawn = SeededRandom::new(branch(roll, serial)).below(spread.saturating_add(1));
                    // latency ± jitter; what would be delivered before it came is delivered at once.
                    due = (due + latency + Duration::from_nanos(drawn)) - jitter;
                }
                Kind::Slicer {
                    average_size,
                    size_variation,
                    ..
                } => {
                    let drawn = self
                        .dice
                        .below(size_variation.saturating_mul(2).saturating_add(1));
                    let size = (average_size - size_variation).saturating_add(drawn);
                    len = len.min(usize::try_from(size).unwrap_or(usize::MAX));
                    due = due.max(self.gap);
                }
                Kind::LimitData { bytes } => {
                    let base = self.active.get(at).map_or(0, |active| active.base);
                    let left = bytes.saturating_sub(self.sent - base);
                    len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
                    continue;
                }
                Kind::Bandwidth { rate: most } => rate = rate.min(most),
                _ => continue,
            }
            self.note(at);
        }
        if rate < u64::MAX {
            // A tenth of a second's worth at a time: smooth enough, and a change of rate is felt soon.
            len = len.min(usize::try_from(rate.saturating_mul(100)).unwrap_or(usize::MAX));
            let cost = Duration::from_nanos((len as u64).saturating_mul(1_000_000) / rate);
            due = due.max(now).max(self.paid) + cost;
        }
        Piece { len, due }
    }

    /// The bytes that [`Next::Send`] is about.
    pub(super) fn piece(&self, len: usize) -> &[u8] {
        match self.queue.front() {
            Some(Item::Data { bytes, sent, .. }) => bytes.get(*sent..sent + len).unwrap_or_default(),
            _ => &[],
        }
    }

    /// So many bytes of the piece went out. Answers with the toxic whose byte trigger that pulled.
    pub(super) fn sent(&mut self, count: usize, now: Moment) -> Option<Arc<Entry>> {
        self.sent += count as u64;
        self.queued -= count.min(self.queued);
        if let Some(Item::Data { bytes, sent, .. }) = self.queue.front_mut() {
            *sent += count;
            if *sent >= bytes.len() {
                self.queue.pop_front();
            }
        }
        if let Some(piece) = &mut self.piece {
            piece.len -= count.min(piece.len);
            if piece.len == 0 {
                self.paid = piece.due;
                self.piece = None;
                self.gap = now;
                for at in 0..self.active.len() {
                    if let Some(Kind::Slicer { delay, .. }) = self.kind(at) {
                        self.gap = self.gap + delay;
                    }
                }
            }
        }
        let total = self.sent;
        let pulled = self.hits().find(|active| match active.entry.toxic.kind {
            Kind::CutAfterForward(Cut {
                bytes: Some(bytes), ..
            }) => total - active.base >= bytes,
            _ => false,
        });
        pulled.map(|active| Arc::clone(&active.entry))
    }

    /// What is done to a command that has come in whole.
    pub(super) fn judge(&mut self, name: &[u8], repeatable: bool) -> Verdict {
        let mut verdict = Verdict::default();
        for active in &self.active {
            let entry = &active.entry;
            let (wanted, repeat) = match &entry.toxic.kind {
                Kind::Repeat(Repeat { command, .. }) => (command, true),
                Kind::CutAfterForward(Cut {
                    command, bytes: None, ..
                }) => (command, false),
                _ => continue,
            };
            let named = wanted
                .as_ref()
                .is_none_or(|wanted| wanted.as_bytes().eq_ignore_ascii_case(name));
            let open = if repeat {
                repeatable && !verdict.repeat
            } else {
                verdict.cut.is_none()
            };
            // Drawn for every command that is meant, whatever else happens to it, so the next draw does not shift.
            if !named || !active.draw() || !open || !entry.claim() {
                continue;
            }
            if repeat {
                verdict.repeat = true;
                self.effects.push(Arc::clone(entry));
            } else {
                verdict.cut = Some(Arc::clone(entry));
            }
        }
        verdict
    }

    fn kind(&self, at: usize) -> Option<Kind> {
        let active = self.active.get(at).filter(|active| active.hit)?;
        Some(active.entry.toxic.kind.clone())
    }

    fn note(&mut self, at: usize) {
        if let Some(active) = self.active.get_mut(at).filter(|active| !active.noted) {
            active.noted = true;
            self.effects.push(Arc::clone(&active.entry));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests;
