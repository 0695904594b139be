//! One direction of one connection as a pure machine. Input is bytes and the time, output is the
//! next action. It has no I/O, clock or task, so tests can check every delay to the nanosecond.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::rng::{Random, RandomExt, SeededRandom};

use super::active_toxic::{ActiveToxic, derive_seed};
use super::registry::InstalledToxic;
use super::resp::CommandFaults;
use super::toxic::{CutOptions, RepeatOptions, StreamDirection, ToxicKind};

/// How a toxic closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForcedClose {
    /// FIN.
    Close,
    /// RST.
    Reset,
}

/// The next action of a stream machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Send this many bytes of [`StreamMachine::piece`].
    Send(usize),
    /// Wait for input, or until this time if it is given.
    Wait(Option<Moment>),
    /// All data is sent and the source has ended: forward the FIN.
    Finish,
    /// Close both directions of the connection.
    End(ForcedClose),
}

#[derive(Debug)]
enum QueuedItem {
    /// Bytes with their arrival time and a random number drawn at arrival. The first `sent` bytes
    /// have been sent.
    Data { arrived: Moment, jitter_draw: u64, bytes: Vec<u8>, sent: usize },
    /// The connection ends here.
    Cut(ForcedClose),
}

/// The part of the queue's head to send next, and the time to send it.
#[derive(Debug, Clone, Copy)]
struct PlannedPiece {
    len: usize,
    due: Moment,
}

#[derive(Debug)]
pub(super) struct StreamMachine {
    stream: StreamDirection,
    seed: u64,
    buffer: usize,
    active: Vec<ActiveToxic>,
    random: SeededRandom,
    queue: VecDeque<QueuedItem>,
    queued: usize,
    piece: Option<PlannedPiece>,
    sent: u64,
    /// When the bandwidth limit allows the next byte.
    bandwidth_free_at: Moment,
    /// When the slicer allows the next piece.
    next_slice_at: Moment,
    source_ended_at: Option<Moment>,
    held_back: bool,
    cut_queued: bool,
    new_effects: Vec<Arc<InstalledToxic>>,
}

impl StreamMachine {
    /// Creates it with the connection's `seed`. Reading stops while `buffer` bytes are queued.
    pub(super) fn new(stream: StreamDirection, seed: u64, buffer: usize) -> Self {
        Self {
            stream,
            seed,
            buffer,
            active: Vec::new(),
            random: SeededRandom::new(derive_seed(seed, (stream as u64) << 1)),
            queue: VecDeque::new(),
            queued: 0,
            piece: None,
            sent: 0,
            bandwidth_free_at: Moment::ZERO,
            next_slice_at: Moment::ZERO,
            source_ended_at: None,
            held_back: false,
            cut_queued: false,
            new_effects: Vec::new(),
        }
    }

    /// Replaces the toxics in force. Toxics that were in force before keep their state.
    pub(super) fn set_toxics(&mut self, entries: &[Arc<InstalledToxic>], now: Moment) {
        let mut before = std::mem::take(&mut self.active);
        for entry in entries.iter().filter(|entry| entry.toxic.stream == self.stream) {
            let known = before.iter().position(|active| active.entry.serial == entry.serial);
            self.active.push(if let Some(at) = known {
                before.swap_remove(at)
            } else {
                ActiveToxic::new(entry, self.seed, now, self.sent)
            });
        }
        // The planned piece is planned again, so removing a delay takes effect at once.
        self.piece = None;
        self.bandwidth_free_at = self.bandwidth_free_at.min(now);
        self.next_slice_at = self.next_slice_at.min(now);
        let held =
            self.applying_toxics().any(|active| matches!(active.entry.toxic.kind, ToxicKind::Timeout { .. }));
        self.held_back = held;
    }

    fn applying_toxics(&self) -> impl Iterator<Item = &ActiveToxic> {
        self.active.iter().filter(|active| active.applies)
    }

    /// Whether to read more: the buffer has room, and no toxic holds data back.
    pub(super) fn wants_read(&self) -> bool {
        self.source_ended_at.is_none() && !self.held_back && !self.cut_queued && self.queued < self.buffer
    }

    /// Queues bytes that arrived.
    pub(super) fn push(&mut self, bytes: Vec<u8>, now: Moment) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            // Drawn at arrival, not when the piece is planned: planning again must not change the
            // jitter.
            let roll = self.random.bits();
            self.queue.push_back(QueuedItem::Data { arrived: now, jitter_draw: roll, bytes, sent: 0 });
        }
    }

    /// Cuts the connection after the data that is queued now.
    pub(super) fn queue_cut(&mut self, end: ForcedClose) {
        self.cut_queued = true;
        self.queue.push_back(QueuedItem::Cut(end));
    }

    /// The source has sent its FIN.
    pub(super) fn source_ended(&mut self, now: Moment) {
        self.source_ended_at.get_or_insert(now);
    }

    /// Takes the toxics that had their first effect since the last call.
    pub(super) fn take_effects(&mut self) -> std::vec::Drain<'_, Arc<InstalledToxic>> {
        self.new_effects.drain(..)
    }

    /// Returns what to do now.
    pub(super) fn next(&mut self, now: Moment) -> NextAction {
        // Toxics that end the connection come first: they apply even when no data is queued.
        let mut alarm = Moment::FAR;
        for at in 0..self.active.len() {
            let Some(active) = self.active.get(at).filter(|active| active.applies) else {
                continue;
            };
            let (since, done) = (active.since, self.sent - active.sent_before);
            let end = match active.entry.toxic.kind {
                ToxicKind::ResetPeer { timeout } => Some((since + timeout, ForcedClose::Reset)),
                ToxicKind::Timeout { timeout: Duration::ZERO } => None,
                ToxicKind::Timeout { timeout } => Some((since + timeout, ForcedClose::Close)),
                ToxicKind::LimitData { bytes } => (done >= bytes).then_some((now, ForcedClose::Close)),
                _ => continue,
            };
            if matches!(active.entry.toxic.kind, ToxicKind::Timeout { .. }) {
                // A timeout has its effect, holding data, long before it ends the connection.
                self.record_effect(at);
            }
            match end {
                Some((moment, end)) if now >= moment => {
                    self.record_effect(at);
                    return NextAction::End(end);
                }
                Some((moment, _)) => alarm = alarm.min(moment),
                None => {}
            }
        }
        match self.next_for_queue(now) {
            _ if self.held_back => NextAction::Wait(Some(alarm).filter(|at| *at < Moment::FAR)),
            NextAction::Wait(due) => {
                NextAction::Wait(Some(due.unwrap_or(Moment::FAR).min(alarm)).filter(|at| *at < Moment::FAR))
            }
            next => next,
        }
    }

    /// The next action for the queue, without the toxics that end connections.
    fn next_for_queue(&mut self, now: Moment) -> NextAction {
        if self.held_back {
            return NextAction::Wait(None);
        }
        match (self.queue.front(), self.source_ended_at) {
            (Some(QueuedItem::Cut(end)), _) => NextAction::End(*end),
            (Some(QueuedItem::Data { .. }), _) => {
                let piece = self.piece.unwrap_or_else(|| self.plan_piece(now));
                self.piece = Some(piece);
                if now >= piece.due { NextAction::Send(piece.len) } else { NextAction::Wait(Some(piece.due)) }
            }
            (None, Some(ended)) => {
                let mut due = ended;
                for at in 0..self.active.len() {
                    if let Some(ToxicKind::SlowClose { delay }) = self.applying_kind(at) {
                        due = due + delay;
                        self.record_effect(at);
                    }
                }
                if now >= due { NextAction::Finish } else { NextAction::Wait(Some(due)) }
            }
            (None, None) => NextAction::Wait(None),
        }
    }

    /// Decides how much of the queue's head to send next, and when.
    fn plan_piece(&mut self, now: Moment) -> PlannedPiece {
        let Some(QueuedItem::Data { arrived, jitter_draw: roll, bytes, sent }) = self.queue.front() else {
            return PlannedPiece { len: 0, due: Moment::FAR };
        };
        let (mut due, mut len, roll) = (*arrived, bytes.len() - sent, *roll);
        let mut rate = u64::MAX;
        for at in 0..self.active.len() {
            let Some(kind) = self.applying_kind(at) else {
                continue;
            };
            match kind {
                ToxicKind::Latency { latency, jitter } => {
                    let serial = self.active.get(at).map_or(0, |active| active.entry.serial);
                    let spread = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
                    let drawn = SeededRandom::new(derive_seed(roll, serial)).below(spread.saturating_add(1));
                    // latency ± jitter. A jitter above the latency gives a time before arrival,
                    // which means at once.
                    due = (due + latency + Duration::from_nanos(drawn)) - jitter;
                }
                ToxicKind::Slicer { average_size, size_variation, .. } => {
                    let drawn = self.random.below(size_variation.saturating_mul(2).saturating_add(1));
                    let size = (average_size - size_variation).saturating_add(drawn);
                    len = len.min(usize::try_from(size).unwrap_or(usize::MAX));
                    due = due.max(self.next_slice_at);
                }
                ToxicKind::LimitData { bytes } => {
                    let base = self.active.get(at).map_or(0, |active| active.sent_before);
                    let left = bytes.saturating_sub(self.sent - base);
                    len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
                    // Not an effect yet: it is recorded when the limit closes the connection.
                    continue;
                }
                ToxicKind::Bandwidth { rate: most } => rate = rate.min(most),
                _ => continue,
            }
            self.record_effect(at);
        }
        if rate < u64::MAX {
            // The rate is in kB/s, so this is 100 ms worth of data: smooth, and a new rate applies
            // soon.
            len = len.min(usize::try_from(rate.saturating_mul(100)).unwrap_or(usize::MAX));
            let cost = Duration::from_nanos((len as u64).saturating_mul(1_000_000) / rate);
            due = due.max(now).max(self.bandwidth_free_at) + cost;
        }
        PlannedPiece { len, due }
    }

    /// The bytes that [`NextAction::Send`] refers to.
    pub(super) fn piece(&self, len: usize) -> &[u8] {
        match self.queue.front() {
            Some(QueuedItem::Data { bytes, sent, .. }) => bytes.get(*sent..sent + len).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Records that `count` bytes of the piece were sent. Returns the toxic whose byte limit is
    /// reached by that.
    pub(super) fn record_sent(&mut self, count: usize, now: Moment) -> Option<Arc<InstalledToxic>> {
        self.sent += count as u64;
        self.queued -= count.min(self.queued);
        if let Some(QueuedItem::Data { bytes, sent, .. }) = self.queue.front_mut() {
            *sent += count;
            if *sent >= bytes.len() {
                self.queue.pop_front();
            }
        }
        if let Some(piece) = &mut self.piece {
            piece.len -= count.min(piece.len);
            if piece.len == 0 {
                // From `due`, not `now`: a late wake-up must not lower the bandwidth below the
                // configured rate.
                self.bandwidth_free_at = piece.due;
                self.piece = None;
                self.next_slice_at = now;
                for at in 0..self.active.len() {
                    if let Some(ToxicKind::Slicer { delay, .. }) = self.applying_kind(at) {
                        self.next_slice_at = self.next_slice_at + delay;
                    }
                }
            }
        }
        let total = self.sent;
        let pulled = self.applying_toxics().find(|active| match active.entry.toxic.kind {
            ToxicKind::CutAfterForward(CutOptions { bytes: Some(bytes), .. }) => {
                total - active.sent_before >= bytes
            }
            _ => false,
        });
        pulled.map(|active| Arc::clone(&active.entry))
    }

    /// Decides what to do with a complete command.
    pub(super) fn faults_for_command(&mut self, name: &[u8], repeatable: bool) -> CommandFaults {
        let mut verdict = CommandFaults::default();
        for active in &self.active {
            let entry = &active.entry;
            let (wanted, repeat) = match &entry.toxic.kind {
                ToxicKind::Repeat(RepeatOptions { command, .. }) => (command, true),
                ToxicKind::CutAfterForward(CutOptions { command, bytes: None, .. }) => (command, false),
                _ => continue,
            };
            let named = wanted.as_ref().is_none_or(|wanted| wanted.as_bytes().eq_ignore_ascii_case(name));
            let open = if repeat { repeatable && !verdict.repeat } else { verdict.cut.is_none() };
            // Drawn for every command of that name, even if the result is unused: the sequence of
            // draws must not depend on other toxics.
            if !named || !active.draw() || !open || !entry.claim_use() {
                continue;
            }
            if repeat {
                verdict.repeat = true;
                self.new_effects.push(Arc::clone(entry));
            } else {
                verdict.cut = Some(Arc::clone(entry));
            }
        }
        verdict
    }

    fn applying_kind(&self, at: usize) -> Option<ToxicKind> {
        let active = self.active.get(at).filter(|active| active.applies)?;
        Some(active.entry.toxic.kind.clone())
    }

    fn record_effect(&mut self, at: usize) {
        if let Some(active) = self.active.get_mut(at).filter(|active| !active.effect_recorded) {
            active.effect_recorded = true;
            self.new_effects.push(Arc::clone(&active.entry));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests;
