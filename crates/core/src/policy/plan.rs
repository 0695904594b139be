//! The renewal plan: is there room for a retry between the first renewal and the deadline?

use std::time::Duration;

use super::Class;

/// The worst case of the first renewal and the soonest retry after it, counted from when the last confirmed
/// request was sent.
///
/// The first attempt is sent at `renew.every` and fails only after its whole `renew.timeout`. The retry is sent
/// after [`RenewPlan::pause`] and takes its whole time-out too. It must end by the deadline: then one lost answer
/// never costs a hold (trap 2). A keeper may spread its retries over whatever more time there is (see ADR 0006),
/// as long as the last one can still be answered by the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenewPlan {
    /// The deadline: TTL less drift less stop grace.
    pub usable: Duration,
    /// The first renewal is sent.
    pub first_sent: Duration,
    /// It has failed.
    pub first_failed: Duration,
    /// The retry is sent, at the soonest.
    pub retry_sent: Duration,
    /// That retry has been answered, or has failed.
    pub retry_ended: Duration,
}

impl RenewPlan {
    /// The plan of a class; `None` if it does not renew.
    #[must_use]
    pub fn of(class: &Class) -> Option<Self> {
        let first_sent = class.renew.every?;
        let first_failed = first_sent.saturating_add(class.renew.timeout);
        let retry_sent = first_failed.saturating_add(Self::pause(class));
        Some(Self {
            usable: class.usable(),
            first_sent,
            first_failed,
            retry_sent,
            retry_ended: retry_sent.saturating_add(class.renew.timeout),
        })
    }

    /// The room left for a pause before the first retry: `acquire.retry` with its greatest jitter, one
    /// half more.
    #[must_use]
    pub fn pause(class: &Class) -> Duration {
        class.acquire.retry.saturating_add(class.acquire.retry / 2)
    }

    /// Is there time for a retry?
    #[must_use]
    pub fn fits(&self) -> bool {
        self.retry_ended <= self.usable
    }
}
