//! The confirmed lease and the terms of its requests.

use std::time::Duration;

use crate::clock::Moment;
use crate::deadline::usable_time;
use crate::policy::Class;

/// The lease as the store last confirmed it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfirmedLease {
    // Send time of the confirmed request: the deadline counts from it.
    pub(super) sent_at: Moment,
    pub(super) answered_at: Moment,
    pub(super) terms: LeaseTerms,
}

/// The terms of a request. A later policy change does not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTerms {
    // TTL as the holder counts it.
    pub(super) ttl: Duration,
    // Lifetime in the store: TTL and lock delay.
    pub(super) store_ttl: Duration,
    // Possible clock drift over this TTL.
    pub(super) drift: Duration,
}

impl LeaseTerms {
    pub(super) fn of(class: &Class, granted: Option<Duration>) -> Self {
        let ttl = class.granted_ttl(granted);
        Self { ttl, store_ttl: ttl + class.release.lock_delay, drift: class.drift }
    }

    // Uses the margins of the class in force, but never less drift than the lease was requested
    // with: a shortened TTL brings a smaller drift, while this lease still lives for the longer
    // one.
    pub(super) fn deadline(self, sent_at: Moment, class: &Class) -> Moment {
        sent_at + usable_time(self.ttl, self.drift.max(class.drift), class.stop_grace)
    }

    /// The longer of each value.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            ttl: self.ttl.max(other.ttl),
            store_ttl: self.store_ttl.max(other.store_ttl),
            drift: self.drift.max(other.drift),
        }
    }
}

/// The store call in flight, at most one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InFlightCall {
    Renew(LeaseTerms),
    Heal(LeaseTerms),
    Release,
}
