//! Counters of the traffic and the history of injected faults, for reports.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold_core::clock::{Moment, SharedClock};

use super::toxic::{StreamDirection, Toxic};

/// A fault that affected a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InjectedFault {
    /// Time of the fault on the proxy's clock.
    pub at: Moment,
    /// Number of the connection, counted from 1 in the order of acceptance.
    pub connection: u64,
    /// The toxic's name; `down` for connections closed because the proxy was disabled.
    pub toxic: String,
    /// The toxic's type.
    pub kind: &'static str,
    /// The affected direction; none for `down`.
    pub stream: Option<StreamDirection>,
}

/// Traffic and fault counters of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ProxyStats {
    /// Connections accepted since the start.
    pub connections: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Connections that were closed because the server could not be reached.
    pub unreachable: u64,
    /// Bytes forwarded to the server, repeated commands included.
    pub bytes_upstream: u64,
    /// Bytes forwarded to clients.
    pub bytes_downstream: u64,
    /// Complete commands received from clients (RESP only).
    pub commands: u64,
    /// Complete replies and pushes received from the server (RESP only).
    pub replies: u64,
    /// Replies to repeated commands, which the client does not see.
    pub swallowed: u64,
    /// Connections in which replies could no longer be matched to commands, so bytes are forwarded
    /// unchanged.
    pub unframed: u64,
    /// Faults by type. A continuous toxic (`latency`, `bandwidth`, `slicer`, `timeout`) counts once
    /// for each connection it affects; the others count each time.
    pub faults: BTreeMap<&'static str, u64>,
    /// Faults that are counted but missing in the history, because the history is full.
    pub forgotten: u64,
}

/// Collects [`ProxyStats`] and [`InjectedFault`]s of one proxy.
#[derive(Debug)]
pub(super) struct ProxyRecorder {
    clock: SharedClock,
    max_history: usize,
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) bytes_upstream: AtomicU64,
    pub(super) bytes_downstream: AtomicU64,
    pub(super) commands: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) swallowed: AtomicU64,
    pub(super) unframed: AtomicU64,
    fault_log: Mutex<FaultLog>,
}

#[derive(Debug, Default)]
struct FaultLog {
    faults: BTreeMap<&'static str, u64>,
    history: Vec<InjectedFault>,
    forgotten: u64,
}

pub(super) fn increment(counter: &AtomicU64, by: u64) {
    // Relaxed: these are statistics, no other memory access depends on their order.
    counter.fetch_add(by, Ordering::Relaxed);
}

impl ProxyRecorder {
    pub(super) fn new(clock: SharedClock, most: usize) -> Self {
        Self {
            clock,
            max_history: most,
            connections: AtomicU64::default(),
            open: AtomicU64::default(),
            unreachable: AtomicU64::default(),
            bytes_upstream: AtomicU64::default(),
            bytes_downstream: AtomicU64::default(),
            commands: AtomicU64::default(),
            replies: AtomicU64::default(),
            swallowed: AtomicU64::default(),
            unframed: AtomicU64::default(),
            fault_log: Mutex::default(),
        }
    }

    pub(super) fn record_toxic(&self, connection: u64, toxic: &Toxic) {
        self.record_fault(InjectedFault {
            at: self.clock.now(),
            connection,
            toxic: toxic.name.clone(),
            kind: toxic.kind.as_str(),
            stream: Some(toxic.stream),
        });
    }

    /// Records that a connection was closed because the proxy was disabled.
    pub(super) fn record_disabled(&self, connection: u64) {
        self.record_fault(InjectedFault {
            at: self.clock.now(),
            connection,
            toxic: "down".to_owned(),
            kind: "down",
            stream: None,
        });
    }

    fn record_fault(&self, fault: InjectedFault) {
        tracing::debug!(
            connection = fault.connection,
            toxic = fault.toxic,
            kind = fault.kind,
            "fault injected"
        );
        let mut struck = self.fault_log.lock().unwrap_or_else(PoisonError::into_inner);
        *struck.faults.entry(fault.kind).or_default() += 1;
        // A soak injects faults for days: the history is bounded, the counters stay exact.
        if struck.history.len() < self.max_history {
            struck.history.push(fault);
        } else {
            struck.forgotten += 1;
        }
    }

    pub(super) fn stats(&self) -> ProxyStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let struck = self.fault_log.lock().unwrap_or_else(PoisonError::into_inner);
        ProxyStats {
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

    pub(super) fn history(&self) -> Vec<InjectedFault> {
        let struck = self.fault_log.lock().unwrap_or_else(PoisonError::into_inner);
        struck.history.clone()
    }
}
