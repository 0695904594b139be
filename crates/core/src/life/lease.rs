//! What is known of the lease, and what was asked for it.

use std::time::Duration;

use crate::clock::Moment;
use crate::deadline::deadline;
use crate::policy::Class;

/// The lease as last confirmed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    /// Before the confirmed request was sent: what the deadline counts from.
    pub(super) sent_at: Moment,
    /// When its answer arrived.
    pub(super) answered_at: Moment,
    pub(super) terms: Terms,
}

/// What a lease was, or is being, asked with. A policy that changes later does not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// What the holder counts.
    pub(super) ttl: Duration,
    /// What the store counts: TTL and lock delay.
    pub(super) kept: Duration,
    /// What clocks may drift apart over this TTL.
    pub(super) drift: Duration,
}

impl Terms {
    pub(super) fn of(class: &Class, granted: Option<Duration>) -> Self {
        let ttl = class.counted(granted);
        Self {
            ttl,
            kept: ttl + class.release.lock_delay,
            drift: class.drift,
        }
    }

    /// With the margins of the class in force, but never with less drift than the lease was asked with: a TTL that was
    /// shortened since brings a smaller drift, and this lease still lives for the longer one.
    pub(super) fn deadline(self, sent_at: Moment, class: &Class) -> Moment {
        deadline(sent_at, self.ttl, class) - self.drift.saturating_sub(class.drift)
    }

    /// Long enough for both.
    pub(super) fn widest(self, other: Self) -> Self {
        Self {
            ttl: self.ttl.max(other.ttl),
            kept: self.kept.max(other.kept),
            drift: self.drift.max(other.drift),
        }
    }
}

/// A call that is on its way. At most one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flight {
    Renew(Terms),
    Heal(Terms),
    Release,
}
