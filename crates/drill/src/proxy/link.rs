//! One direction of one connection: moves the bytes and timers that its lane asks for, and nothing else.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use leasehold_core::clock::SharedClock;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::catalog::{Entries, Entry};
use super::lane::{End, Lane, Next};
use super::record::{Record, count};
use super::resp::{Commands, Ledger, Replies};
use super::toxic::{Cut, Kind, Stream};

/// How much is read at a time.
const CHUNK: usize = 16 << 10;

/// What a direction makes of its bytes.
#[derive(Debug)]
pub(super) enum Tap {
    Raw,
    Commands(Commands),
    Replies(Replies),
}

/// One direction.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: u64,
    pub(super) stream: Stream,
    pub(super) lane: Lane,
    pub(super) tap: Tap,
    pub(super) ledger: Arc<Ledger>,
    pub(super) record: Arc<Record>,
    pub(super) clock: SharedClock,
    pub(super) toxics: watch::Receiver<Entries>,
}

impl Link {
    /// Until the source has ended and all of it is passed on, or the connection is to end by force.
    pub(super) async fn run(mut self, source: ReadHalf<'_>, mut sink: WriteHalf<'_>) -> Result<(), End> {
        self.toxics.mark_changed();
        loop {
            if self.toxics.has_changed().unwrap_or(false) {
                let entries = Arc::clone(&self.toxics.borrow_and_update());
                self.lane.apply(&entries, self.clock.now());
            }
            let next = self.lane.next(self.clock.now());
            for entry in self.lane.effects() {
                self.record.fault(self.connection, &entry.toxic);
            }
            let (len, alarm) = match next {
                Next::End(end) => return Err(end),
                Next::Finish => return sink.shutdown().await.map_err(|_| End::Reset),
                Next::Send(len) => (Some(len), None),
                Next::Wait(at) => (None, at),
            };
            let room = self.stream == Stream::Downstream || self.ledger.has_room();
            let sleep = async {
                match alarm {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.toxics.changed() => {
                    // Marked as seen by this; applied at the top.
                    changed.map_err(|_| End::Close)?;
                    self.toxics.mark_changed();
                }
                () = sleep => {}
                wrote = sink.write(self.lane.piece(len.unwrap_or(0))), if len.is_some() => {
                    self.wrote(wrote)?;
                }
                ready = source.readable(), if room && self.lane.wants_read() => {
                    ready.map_err(|_| End::Reset)?;
                    self.pull(&source)?;
                }
                () = self.ledger.room(), if !room => {}
            }
        }
    }

    fn wrote(&mut self, wrote: io::Result<usize>) -> Result<(), End> {
        let wrote = wrote.map_err(|_| End::Reset)?;
        count(self.bytes(), wrote as u64);
        if let Some(entry) = self.lane.sent(wrote, self.clock.now()) {
            self.ledger.trip(entry);
        }
        Ok(())
    }

    fn bytes(&self) -> &AtomicU64 {
        match self.stream {
            Stream::Upstream => &self.record.bytes_upstream,
            Stream::Downstream => &self.record.bytes_downstream,
        }
    }

    /// Takes what has come in.
    fn pull(&mut self, source: &ReadHalf<'_>) -> Result<(), End> {
        // Here and not in the task's state: ten thousand idle connections need no buffer.
        let mut buffer = [0; CHUNK];
        match source.try_read(&mut buffer) {
            Ok(0) => self.lane.end(self.clock.now()),
            Ok(got) => self.came(buffer.get(..got).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // What one side resets is reset for the other.
            Err(_) => return Err(End::Reset),
        }
        Ok(())
    }

    fn came(&mut self, chunk: &[u8]) {
        let now = self.clock.now();
        let in_force = |entry: &Entry| {
            let entries = self.toxics.borrow();
            entries.iter().any(|known| known.serial == entry.serial)
        };
        if self.stream == Stream::Downstream
            && let Some(entry) = self
                .ledger
                .tripped()
                .filter(|entry| in_force(entry) && entry.claim())
        {
            return self.cut(&entry);
        }
        match &mut self.tap {
            Tap::Raw => self.lane.push(chunk.to_vec(), now),
            Tap::Commands(commands) => {
                let lane = &mut self.lane;
                let (out, ended) = commands.take(chunk, &self.ledger, |name, whole| lane.judge(name, whole));
                count(&self.record.commands, ended);
                self.lane.push(out, now);
            }
            Tap::Replies(replies) => {
                let sorted = replies.take(chunk, &self.ledger, in_force);
                count(&self.record.replies, sorted.ended);
                count(&self.record.swallowed, sorted.swallowed);
                count(&self.record.unframed, u64::from(sorted.lost_track));
                self.lane.push(sorted.out, now);
                if let Some(entry) = sorted.cut {
                    self.cut(&entry);
                }
            }
        }
    }

    fn cut(&mut self, entry: &Entry) {
        let reset = matches!(entry.toxic.kind, Kind::CutAfterForward(Cut { reset: true, .. }));
        self.record.fault(self.connection, &entry.toxic);
        self.lane.cut(if reset { End::Reset } else { End::Close });
    }
}
