//! The renewal plan: whether a retry fits between the first renewal and the deadline.

use std::time::Duration;

use super::Class;

/// The worst case of the first renewal and its soonest retry, relative to the send time of the last
/// confirmed request.
///
/// The first attempt is sent at `renew.every` and fails after its whole `renew.timeout`. The retry
/// is sent after [`RenewPlan::retry_pause`] and takes its whole timeout too. It must end by the
/// deadline: then one lost response never costs a hold (trap 2). A keeper may spread its retries
/// over more time (see ADR 0006), as long as the last one can still be answered by the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenewPlan {
    /// The deadline: TTL less drift less stop grace.
    pub usable: Duration,
    /// When the first renewal is sent.
    pub first_sent: Duration,
    /// When the first renewal has failed.
    pub first_failed: Duration,
    /// When the retry is sent at the earliest.
    pub retry_sent: Duration,
    /// When that retry has been answered or has failed.
    pub retry_ended: Duration,
}

impl RenewPlan {
    /// The plan of a class; `None` if it does not renew.
    #[must_use]
    pub fn of(class: &Class) -> Option<Self> {
        let first_sent = class.renew.every?;
        let first_failed = first_sent.saturating_add(class.renew.timeout);
        let retry_sent = first_failed.saturating_add(Self::retry_pause(class));
        Some(Self {
            usable: class.usable(),
            first_sent,
            first_failed,
            retry_sent,
            retry_ended: retry_sent.saturating_add(class.renew.timeout),
        })
    }

    /// The pause before the first retry: `acquire.retry` with its largest jitter, one half more.
    #[must_use]
    pub fn retry_pause(class: &Class) -> Duration {
        class.acquire.retry.saturating_add(class.acquire.retry / 2)
    }

    /// Returns true if the retry ends before the deadline.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.retry_ended <= self.usable
    }
}
