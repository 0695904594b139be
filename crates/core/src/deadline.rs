//! The rules that compute and compare the end of a lease or a hold. No other module has such a rule.
//!
//! The store granted a lease at some moment after its request was *sent*; nothing more is known. So
//! the holder counts from the send time, and subtracts the clock drift and the time that the work
//! needs to stop. A model check refutes both "count from the response" and a margin of one clock
//! error only: keep both terms.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::Loss;
use crate::hold::HoldStatus;
use crate::policy::{Class, OnFailure};

/// When the work of a hold must stop, as the hold's last step left it.
///
/// It is judged with the time of use, because the task that renews the lease may run late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadline {
    /// The status at the last step; [`judge`](Self::judge) gives the status now.
    pub status: HoldStatus,
    /// The confirmed lease is safe to use until this moment; zero if no lease can be proven.
    pub proven_until: Moment,
    /// `max_hold` ends the hold at this moment. [`Moment::FAR`] if the class does not enforce one.
    pub limit: Moment,
    /// The work must stop at `proven_until`. Otherwise it continues without proof up to `limit`.
    pub stops_unproven: bool,
}

impl Deadline {
    /// The moment after which the work must not act. It stays the same when the hold ends early, so
    /// that a supervisor knows how much time it has to stop the work.
    #[must_use]
    pub fn stop_at(&self) -> Moment {
        if self.stops_unproven { self.proven_until.min(self.limit) } else { self.limit }
    }

    /// The status at `now`. The guard and the machine both use this order, so that the guard's error
    /// and the machine's event report the same reason.
    #[must_use]
    pub fn judge(&self, now: Moment) -> HoldStatus {
        match self.status {
            HoldStatus::Lost(_) | HoldStatus::Released => self.status,
            _ if now >= self.limit => HoldStatus::Lost(Loss::MaxHold),
            HoldStatus::Proven if now >= self.proven_until && self.stops_unproven => {
                HoldStatus::Lost(Loss::Deadline)
            }
            HoldStatus::Proven if now >= self.proven_until => HoldStatus::Unproven,
            standing => standing,
        }
    }

    /// How long work may continue without another confirmed renewal; zero if the hold ended.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        match self.judge(now) {
            HoldStatus::Lost(_) => Duration::ZERO,
            _ => self.stop_at().since(now),
        }
    }

    /// How long no other client can be granted the name; zero if no lease can be proven.
    #[must_use]
    pub fn proven_for(&self, now: Moment) -> Duration {
        match self.judge(now) {
            HoldStatus::Proven => self.proven_until.min(self.limit).since(now),
            _ => Duration::ZERO,
        }
    }

    /// The deadline of a lease that the store keeps until this moment, seen from outside: only its
    /// own end ends it.
    #[must_use]
    pub fn of_lease(proven_until: Moment) -> Self {
        Self { status: HoldStatus::Proven, proven_until, limit: Moment::FAR, stops_unproven: true }
    }
}

/// The time of a remote client whose hold this process keeps: each heartbeat extends it.
///
/// The client's work also ends with the hold, so every method takes the hold's [`Deadline`].
#[derive(Debug, Clone, Copy)]
pub struct HeartbeatDeadline {
    heartbeat: Duration,
    // The latest time until which any response allowed the client to work.
    valid_until: Moment,
    // The lease is kept for this long for a client that may work on without this process.
    kept_after: Duration,
}

impl HeartbeatDeadline {
    /// A client that has been promised nothing yet. Work of a `continue` class may go on without
    /// this process, so its lease is kept for one more `ttl`.
    #[must_use]
    pub fn new(heartbeat: Duration, on_failure: OnFailure, ttl: Duration) -> Self {
        let kept_after = match on_failure {
            OnFailure::Fence => Duration::ZERO,
            OnFailure::Continue => ttl,
        };
        Self { heartbeat, valid_until: Moment::ZERO, kept_after }
    }

    /// The same client, after a response that allowed it to work until then.
    #[must_use]
    pub fn promised(mut self, until: Moment) -> Self {
        self.valid_until = self.valid_until.max(until);
        self
    }

    /// A client that is silent for this long counts as gone.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// Extends the client's time and returns it. Earlier promises stay in force, because the client
    /// may never receive this response. (A lease taken after a local-only start may end sooner than
    /// the time promised without one.)
    pub fn extend(&mut self, hold: &Deadline, now: Moment) -> Duration {
        let valid = hold.remaining(now).min(self.heartbeat);
        *self = self.promised(now + valid);
        valid
    }

    /// How long the client may work without another heartbeat. An earlier policy or process may
    /// have promised more than the hold has left. That promise is kept, but not repeated.
    #[must_use]
    pub fn remaining(&self, hold: &Deadline, now: Moment) -> Duration {
        self.valid_until.since(now).min(hold.remaining(now))
    }

    /// Returns true if the client's time is over on its own clock too, which may run slower.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        let margin = Class::default_drift(self.heartbeat);
        now >= self.valid_until + margin + self.kept_after
    }
}

/// How long a holder may act on a lease of this TTL, counted from the send time of its request.
#[must_use]
pub fn usable_time(ttl: Duration, drift: Duration, stop_grace: Duration) -> Duration {
    ttl.saturating_sub(drift).saturating_sub(stop_grace)
}

/// The moment after which the holder of a lease must not act. `sent_at` is the send time of the
/// confirmed request.
#[must_use]
pub fn deadline(sent_at: Moment, ttl: Duration, class: &Class) -> Moment {
    sent_at + usable_time(ttl, class.drift, class.stop_grace)
}

/// The moment at which the store's lease has expired for certain, if the store last touched it at
/// `touched`.
#[must_use]
pub fn latest_expiry(touched: Moment, kept: Duration, drift: Duration) -> Moment {
    touched + kept + drift
}

/// The drift over `kept`, if it is `drift` over `ttl`. Clocks diverge in proportion to the time: a lock
/// delay makes the store keep a lease for longer than the TTL that the class's drift is meant for.
#[must_use]
pub fn drift_over(kept: Duration, ttl: Duration, drift: Duration) -> Duration {
    let nanos = drift.as_nanos().saturating_mul(kept.as_nanos()).div_ceil(ttl.as_nanos().max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(drift)
}

/// Compares the store's remaining time with what this clock expects. Returns `Some((by, ahead))` if
/// the drift does not explain the difference. `sent_at` and `now` enclose the moment at which the
/// store read its clock.
#[must_use]
pub fn clock_jump(
    last_sent: Moment,
    last_answered: Moment,
    kept: Duration,
    sent_at: Moment,
    now: Moment,
    was_left: Duration,
    class: &Class,
) -> Option<(Duration, bool)> {
    // Widest plausible interval: the earlier request may have been applied anywhere between its
    // sending and its response, and so may this one.
    let most = kept.saturating_sub(sent_at.since(last_answered)) + class.drift;
    let least = kept.saturating_sub(now.since(last_sent)).saturating_sub(class.drift);
    if was_left > most {
        Some((was_left - most, false))
    } else if was_left < least {
        Some((least - was_left, true))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyBook;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn class() -> Class {
        let at = Moment::ZERO;
        let mut class = (*PolicyBook::builtin().class("scheduler", at).unwrap()).clone();
        class.drift = ms(100);
        class.stop_grace = ms(1_000);
        class
    }

    // TTL 10 s, granted between 1.0 and 1.2 s, renewed between 4.0 and 4.5 s: 6.5 to 7.2 s remain,
    // plus or minus the drift.
    fn jump(was_left: u64) -> Option<(Duration, bool)> {
        let at = |millis| Moment::ZERO + ms(millis);
        clock_jump(at(1_000), at(1_200), ms(10_000), at(4_000), at(4_500), ms(was_left), &class())
    }

    #[test]
    fn differences_within_the_drift_are_no_clock_jump() {
        for was_left in [6_400, 6_500, 7_000, 7_200, 7_300] {
            assert_eq!(jump(was_left), None, "{was_left}");
        }
    }

    #[test]
    fn differences_beyond_the_drift_are_a_clock_jump() {
        assert_eq!(jump(7_301), Some((ms(1), false)));
        assert_eq!(jump(9_300), Some((ms(2_000), false)));
        assert_eq!(jump(6_399), Some((ms(1), true)));
        assert_eq!(jump(400), Some((ms(6_000), true)));
    }

    const fn proven(proven_until: u64, limit: u64, stops_unproven: bool) -> Deadline {
        Deadline {
            status: HoldStatus::Proven,
            proven_until: Moment::from_nanos(proven_until),
            limit: Moment::from_nanos(limit),
            stops_unproven,
        }
    }

    #[test]
    fn the_limit_is_judged_before_the_lease_and_an_end_is_final() {
        let judge = |deadline: Deadline, now| deadline.judge(Moment::from_nanos(now));
        let (max_hold, expired) = (HoldStatus::Lost(Loss::MaxHold), HoldStatus::Lost(Loss::Deadline));
        let table = [
            (proven(5, 9, true), [(4, HoldStatus::Proven), (5, expired), (9, max_hold)]),
            (proven(5, 9, false), [(4, HoldStatus::Proven), (5, HoldStatus::Unproven), (9, max_hold)]),
            (proven(9, 5, true), [(4, HoldStatus::Proven), (5, max_hold), (9, max_hold)]),
        ];
        for (deadline, expected) in table {
            for (now, status) in expected {
                assert_eq!(judge(deadline, now), status, "{deadline:?} at {now}");
            }
        }
        for status in [HoldStatus::Lost(Loss::NotOwned), HoldStatus::Released] {
            let ended = Deadline { status, ..proven(5, 9, true) };
            assert_eq!(judge(ended, 0), status);
            assert_eq!(judge(ended, 9), status);
        }
        for status in [HoldStatus::Unproven, HoldStatus::LocalOnly] {
            let unproven = Deadline { status, ..proven(0, 9, false) };
            assert_eq!(judge(unproven, 8), status);
            assert_eq!(judge(unproven, 9), max_hold);
        }
    }

    #[test]
    fn the_work_stops_at_the_earlier_end_that_the_class_enforces() {
        assert_eq!(proven(5, 9, true).stop_at(), Moment::from_nanos(5));
        assert_eq!(proven(9, 5, true).stop_at(), Moment::from_nanos(5));
        assert_eq!(proven(5, 9, false).stop_at(), Moment::from_nanos(9));
    }

    #[test]
    fn work_without_proof_remains_until_the_limit_and_proves_nothing() {
        let times = |deadline: Deadline, now| {
            let now = Moment::from_nanos(now);
            (deadline.remaining(now).as_nanos(), deadline.proven_for(now).as_nanos())
        };
        assert_eq!(times(proven(5, 9, true), 2), (3, 3));
        assert_eq!(times(proven(5, 9, true), 5), (0, 0));
        assert_eq!(times(proven(5, 9, false), 2), (7, 3));
        assert_eq!(times(proven(5, 9, false), 5), (4, 0));
        assert_eq!(times(proven(9, 5, true), 2), (3, 3));
        let lease = Deadline::of_lease(Moment::from_nanos(5));
        assert_eq!(times(lease, 2), (3, 3));
        assert_eq!(lease.judge(Moment::from_nanos(5)), HoldStatus::Lost(Loss::Deadline));
    }

    #[test]
    fn a_heartbeat_extends_the_clients_time_within_the_lease() {
        let at = |millis| Moment::ZERO + ms(millis);
        let lease = |until| Deadline::of_lease(at(until));
        let mut client = HeartbeatDeadline::new(ms(1_000), OnFailure::Fence, ms(5_000));
        assert_eq!(client.heartbeat(), ms(1_000));
        assert_eq!(client.extend(&lease(9_000), at(100)), ms(1_000));
        assert_eq!(client.remaining(&lease(9_000), at(300)), ms(800));
        // The lease ends first. The earlier promise stays, but is not repeated.
        assert_eq!(client.extend(&lease(500), at(400)), ms(100));
        assert_eq!(client.remaining(&lease(500), at(400)), ms(100));
        // 20 ms and one per cent for a slower clock.
        assert!(!client.is_over(at(1_129)) && client.is_over(at(1_130)));
        let continues = HeartbeatDeadline::new(ms(1_000), OnFailure::Continue, ms(5_000)).promised(at(1_100));
        assert!(!continues.is_over(at(6_129)) && continues.is_over(at(6_130)));
    }

    #[test]
    fn a_deadline_leaves_room_for_drift_and_for_the_work_to_stop() {
        let sent_at = Moment::ZERO + ms(500);
        assert_eq!(deadline(sent_at, ms(10_000), &class()), sent_at + ms(8_900));
        assert_eq!(deadline(sent_at, ms(50), &class()), sent_at);
    }

    #[test]
    fn latest_expiry_is_ttl_plus_drift_after_the_last_touch() {
        let touched = Moment::ZERO + ms(500);
        assert_eq!(latest_expiry(touched, ms(10_000), ms(100)), touched + ms(10_100));
    }

    #[test]
    fn drift_grows_with_the_lifetime_and_never_shrinks() {
        assert_eq!(drift_over(ms(15_000), ms(10_000), ms(100)), ms(150));
        assert_eq!(drift_over(ms(10_000), ms(10_000), ms(100)), ms(100));
        assert_eq!(drift_over(ms(5_000), ms(10_000), ms(100)), ms(100));
        assert_eq!(drift_over(ms(10_001), ms(10_000), Duration::from_nanos(1)), Duration::from_nanos(2));
    }
}
