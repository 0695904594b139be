//! What a run has come across: a promise that held only because nothing ever happened is worth nothing.
//!
//! Sights are kept beside the state, not in it: they say that some path led through an event, and would otherwise
//! multiply the states by every combination of past events.

use std::sync::atomic::{AtomicU32, Ordering};

/// An event that a configuration must have met somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Sight {
    /// A lease was granted to a client after another had had it.
    TakeOver,
    /// A lease ran out while its holder had not released it.
    Expiry,
    /// A renewal moved a deadline.
    Renewed,
    /// A renewal was answered *not owned*.
    NotOwned,
    /// The target refused a stale write.
    WriteRefused,
    /// The target applied a write.
    WriteApplied,
    /// A grant arrived past its deadline and was given back.
    TooLate,
    /// A late ask met its tombstone.
    Voided,
    /// An ask of the lease's own token was answered with the same grant.
    AskedAgain,
    /// A message was delivered twice.
    Repeated,
    /// A message was lost.
    Lost,
    /// The store forgot a live lease.
    Forgot,
    /// The store's clock stepped.
    Stepped,
    /// A hold past its deadline was proven again by a late renewal.
    ProvenAgain,
}

/// The set of sights of one run, shared by the checker's threads.
#[derive(Debug, Default)]
pub struct Sights(AtomicU32);

impl Sights {
    /// Takes note.
    pub fn saw(&self, sight: Sight) {
        let bit = 1 << (sight as u8);
        // Reading first keeps the line shared between the threads once everything has been seen.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Adds these to another set.
    pub fn copy_to(&self, other: &Self) {
        other
            .0
            .fetch_or(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether it was met.
    #[must_use]
    pub fn has(&self, sight: Sight) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << (sight as u8)) != 0
    }
}
