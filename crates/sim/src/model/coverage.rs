//! Records which events a run has reached: a promise that held only because nothing happened proves
//! nothing.
//!
//! Coverage is kept beside the state, not in it. In the state it would multiply the states by every
//! combination of past events.

use std::sync::atomic::{AtomicU32, Ordering};

/// An event that a configuration must reach on some path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CoverageEvent {
    /// A client was granted the lease after another client had had it.
    TakeOver,
    /// A lease expired before its holder released it.
    Expiry,
    /// A renewal moved a deadline.
    Renewed,
    /// A renewal was answered *not owned*.
    NotOwned,
    /// The target refused a stale write.
    WriteRefused,
    /// The target applied a write.
    WriteApplied,
    /// A grant arrived past its deadline and was undone.
    GrantTooLate,
    /// A late acquire request met its tombstone.
    TombstoneHit,
    /// A repeated request of the lease's own token got the same grant.
    RequestRepeatedByOwner,
    /// A message was delivered twice.
    Repeated,
    /// A message was lost.
    Lost,
    /// The store lost a live lease.
    DataLost,
    /// The store's clock stepped.
    ClockStepped,
    /// A late renewal proved a hold again that was past its deadline.
    ProvenAgain,
}

/// The events reached in one run, shared by the checker's threads.
#[derive(Debug, Default)]
pub struct CoverageSet(AtomicU32);

impl CoverageSet {
    /// Records an event.
    pub fn record(&self, sight: CoverageEvent) {
        let bit = 1 << (sight as u8);
        // Reading first keeps the cache line shared between threads once every event was reached.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Adds these events to another set.
    pub fn copy_to(&self, other: &Self) {
        other.0.fetch_or(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the event was reached.
    #[must_use]
    pub fn contains(&self, sight: CoverageEvent) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << (sight as u8)) != 0
    }
}
