//! What passed and what was broken: counters and the history of faults, for reports.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold_core::clock::{Moment, SharedClock};

use super::toxic::{Stream, Toxic};

/// A fault that hit a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// When, on the proxy's clock.
    pub at: Moment,
    /// Which connection: they are counted from 1 in the order in which they were accepted.
    pub connection: u64,
    /// The toxic's name; `down` for connections closed because the proxy went down.
    pub toxic: String,
    /// The toxic's type.
    pub kind: &'static str,
    /// The direction it works on; none for `down`.
    pub stream: Option<Stream>,
}

/// What went through a proxy so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections given up because the server could not be reached.
    pub unreachable: u64,
    /// Bytes sent on to the server, repeated ones included.
    pub bytes_upstream: u64,
    /// Bytes sent on to clients.
    pub bytes_downstream: u64,
    /// Whole commands that came from clients (RESP).
    pub commands: u64,
    /// Whole replies and pushes that came from the server (RESP).
    pub replies: u64,
    /// Replies to repeated commands that were kept from the client.
    pub swallowed: u64,
    /// Connections in which commands could no longer be told apart, so that bytes were passed as they came.
    pub unframed: u64,
    /// Faults by type. A toxic that works all the time (`latency`, `bandwidth`, `slicer`, `timeout`) counts once for each
    /// connection it affects; the others each time.
    pub faults: BTreeMap<&'static str, u64>,
    /// Faults that are counted but not in the history, because it is full.
    pub forgotten: u64,
}

/// Collects [`Stats`] and [`Fault`]s of one proxy.
#[derive(Debug)]
pub(super) struct Record {
    clock: SharedClock,
    most: usize,
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) bytes_upstream: AtomicU64,
    pub(super) bytes_downstream: AtomicU64,
    pub(super) commands: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) swallowed: AtomicU64,
    pub(super) unframed: AtomicU64,
    struck: Mutex<Struck>,
}

#[derive(Debug, Default)]
struct Struck {
    faults: BTreeMap<&'static str, u64>,
    history: Vec<Fault>,
    forgotten: u64,
}

/// Moves a counter. Nothing is ordered by it.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Record {
    pub(super) fn new(clock: SharedClock, most: usize) -> Self {
        Self {
            clock,
            most,
            connections: AtomicU64::default(),
            open: AtomicU64::default(),
            unreachable: AtomicU64::default(),
            bytes_upstream: AtomicU64::default(),
            bytes_downstream: AtomicU64::default(),
            commands: AtomicU64::default(),
            replies: AtomicU64::default(),
            swallowed: AtomicU64::default(),
            unframed: AtomicU64::default(),
            struck: Mutex::default(),
        }
    }

    /// Notes that a toxic hit a connection.
    pub(super) fn fault(&self, connection: u64, toxic: &Toxic) {
        self.note(Fault {
            at: self.clock.now(),
            connection,
            toxic: toxic.name.clone(),
            kind: toxic.kind.word(),
            stream: Some(toxic.stream),
        });
    }

    /// Notes that a connection was closed because the proxy went down.
    pub(super) fn down(&self, connection: u64) {
        self.note(Fault {
            at: self.clock.now(),
            connection,
            toxic: "down".to_owned(),
            kind: "down",
            stream: None,
        });
    }

    fn note(&self, fault: Fault) {
        tracing::debug!(
            connection = fault.connection,
            toxic = fault.toxic,
            kind = fault.kind,
            "fault injected"
        );
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        *struck.faults.entry(fault.kind).or_default() += 1;
        if struck.history.len() < self.most {
            struck.history.push(fault);
        } else {
            struck.forgotten += 1;
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            connections: read(&self.connections),
            open: read(&self.open),
            unreachable: read(&self.unreachable),
            bytes_upstream: read(&self.bytes_upstream),
            bytes_downstream: read(&self.bytes_downstream),
            commands: read(&self.commands),
            replies: read(&self.replies),
            swallowed: read(&self.swallowed),
            unframed: read(&self.unframed),
            faults: struck.faults.clone(),
            forgotten: struck.forgotten,
        }
    }

    pub(super) fn history(&self) -> Vec<Fault> {
        let struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        struck.history.clone()
    }
}
