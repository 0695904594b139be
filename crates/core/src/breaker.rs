//! The circuit breaker in front of the store.
//!
//! After repeated transport errors, acquires fail at once instead of each waiting for a timeout.
//! One probe at a time detects recovery. Renewals and releases of existing holds bypass the
//! breaker. Pure: the caller passes the time.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::StoreError;

// Consecutive transport errors, over all acquires of the client, that open the breaker.
const FAILURES_TO_OPEN: u32 = 5;
// Doubles with every failed probe.
const FIRST_PROBE_DELAY: Duration = Duration::from_millis(250);
// Bounds how long a recovered store stays unnoticed.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(5);

/// The breaker's decision about one acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Send the request.
    Pass,
    /// Send the request; its result decides whether the breaker closes.
    Probe,
    /// Fail at once: the breaker is open.
    Refuse {
        /// When the next probe is allowed.
        until: Moment,
    },
}

/// The state of the connection to the store, as recent requests showed it.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    probe_delay: Duration,
    // `Some` while the breaker is open; the next probe is due then.
    open_until: Option<Moment>,
    probing: bool,
    // The last error text, repeated to callers that are refused.
    reason: String,
}

impl Breaker {
    /// Decides about one acquire. Returns [`Admission::Probe`] at most once until the probe's
    /// result is recorded.
    pub fn admit(&mut self, now: Moment) -> Admission {
        match self.open_until {
            None => Admission::Pass,
            Some(until) if self.probing || now < until => Admission::Refuse { until },
            Some(_) => {
                self.probing = true;
                Admission::Probe
            }
        }
    }

    /// Records any response of the store. This closes the breaker.
    pub fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Records a request without a response; `probe` tells whether it was the probe.
    pub fn record_failure(&mut self, now: Moment, probe: bool) {
        // Requests that were sent before the breaker opened fail late and say nothing new.
        if self.open_until.is_some() && !probe {
            return;
        }
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_TO_OPEN {
            self.probe_delay = (self.probe_delay * 2).clamp(FIRST_PROBE_DELAY, MAX_PROBE_DELAY);
            self.open_until = Some(now + self.probe_delay);
        }
    }

    /// Records a request with unknown outcome. Returns true if this opened the breaker: the caller
    /// then retries that request as the probe, because only a retry tells whether it was granted.
    pub fn record_unknown(&mut self, now: Moment) -> bool {
        if self.open_until.is_some() {
            return false;
        }
        self.record_failure(now, false);
        // Without this the retry would be refused, and its acquire would fail although the store
        // may answer.
        self.probing = self.open_until.is_some();
        self.probing
    }

    /// Sets the error text for callers that are refused later. The original error helps them more
    /// than "breaker open".
    pub fn set_reason(&mut self, why: &str) {
        why.clone_into(&mut self.reason);
    }

    /// The error text of the last failure.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Records a probe that ended without a result, e.g. because its caller dropped it. The next
    /// acquire probes.
    pub fn record_probe_abandoned(&mut self) {
        self.probing = false;
    }
}

/// The breaker as one acquire uses it: remembers whether this acquire is the probe.
#[derive(Debug, Default)]
pub struct AcquireBreaker {
    is_probe: bool,
}

impl AcquireBreaker {
    /// Decides about the next request of this acquire.
    ///
    /// # Errors
    /// The breaker refuses the request; the text says why and when the next probe is due.
    pub fn admit(&mut self, breaker: &mut Breaker, now: Moment) -> Result<(), String> {
        // The retry of a probe is still the probe: the breaker would refuse a second one.
        if self.is_probe {
            return Ok(());
        }
        match breaker.admit(now) {
            Admission::Refuse { until } => {
                let (why, left) = (breaker.reason(), until.since(now).as_millis());
                return Err(format!("{why}; the next try is due in {left} ms"));
            }
            Admission::Probe => self.is_probe = true,
            Admission::Pass => {}
        }
        Ok(())
    }

    /// Records a response of the store.
    pub fn on_response(&mut self, breaker: &mut Breaker) {
        self.is_probe = false;
        breaker.record_success();
    }

    /// Records a failed request. `retried` states that the acquire will send it again.
    pub fn on_error(&mut self, breaker: &mut Breaker, error: &StoreError, retried: bool, now: Moment) {
        // Only transport errors count: a store that refuses the request is reachable.
        if !error.is_transient() {
            self.abandon(breaker);
            return;
        }
        breaker.set_reason(error.message());
        let probe = std::mem::take(&mut self.is_probe);
        // The retry learns the outcome of the request. It is the probe, because the failure may
        // only show that an idle connection was dead.
        if error.unknown && retried {
            self.is_probe = probe || breaker.record_unknown(now);
        } else {
            breaker.record_failure(now, probe);
        }
    }

    /// Records that this acquire sends no further request. Without it, a probe that was dropped
    /// would keep the breaker open.
    pub fn abandon(&mut self, breaker: &mut Breaker) {
        if std::mem::take(&mut self.is_probe) {
            breaker.record_probe_abandoned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn opens_after_repeated_failures_only() {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_TO_OPEN - 1 {
            breaker.record_failure(at(0), false);
            assert_eq!(breaker.admit(at(0)), Admission::Pass);
        }
        breaker.record_failure(at(0), false);
        assert_eq!(breaker.admit(at(0)), Admission::Refuse { until: at(250) });
    }

    #[test]
    fn one_success_resets_the_failure_count() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            (0..FAILURES_TO_OPEN - 1).for_each(|_| breaker.record_failure(at(0), false));
            breaker.record_success();
        }
        assert_eq!(breaker.admit(at(0)), Admission::Pass);
    }

    #[test]
    fn one_probe_at_a_time() {
        let mut breaker = Breaker::default();
        (0..FAILURES_TO_OPEN).for_each(|_| breaker.record_failure(at(0), false));
        assert_eq!(breaker.admit(at(300)), Admission::Probe);
        assert!(matches!(breaker.admit(at(300)), Admission::Refuse { .. }));
        breaker.record_probe_abandoned();
        assert_eq!(breaker.admit(at(300)), Admission::Probe);
        breaker.record_failure(at(300), true);
        assert_eq!(breaker.admit(at(500)), Admission::Refuse { until: at(800) });
        assert_eq!(breaker.admit(at(800)), Admission::Probe);
        breaker.record_success();
        assert_eq!(breaker.admit(at(800)), Admission::Pass);
    }

    #[test]
    fn probe_delay_grows_up_to_a_limit() {
        let mut breaker = Breaker::default();
        (0..FAILURES_TO_OPEN).for_each(|_| breaker.record_failure(at(0), false));
        let mut now = at(250);
        for pause in [500, 1_000, 2_000, 4_000, 5_000, 5_000] {
            assert_eq!(breaker.admit(now), Admission::Probe);
            breaker.record_failure(now, true);
            let until = now + Duration::from_millis(pause);
            assert_eq!(breaker.admit(now), Admission::Refuse { until });
            now = until;
        }
    }

    // The request with unknown outcome that opens the breaker becomes its probe; no later one does.
    #[test]
    fn unknown_outcome_that_opens_the_breaker_becomes_the_probe() {
        let mut breaker = Breaker::default();
        (1..FAILURES_TO_OPEN).for_each(|_| assert!(!breaker.record_unknown(at(0))));
        assert_eq!(breaker.admit(at(0)), Admission::Pass);
        assert!(breaker.record_unknown(at(0)));
        assert!(!breaker.record_unknown(at(0)), "there is one already");
        assert_eq!(breaker.admit(at(300)), Admission::Refuse { until: at(250) });
        breaker.record_failure(at(300), true);
        assert_eq!(breaker.admit(at(799)), Admission::Refuse { until: at(800) });
        assert_eq!(breaker.admit(at(800)), Admission::Probe);
        assert!(!breaker.record_unknown(at(800)), "an ask from before");
    }

    // Requests in flight when the breaker opened fail one after the other and must not delay the
    // probe.
    #[test]
    fn only_the_probe_reports_the_probe_result() {
        let mut breaker = Breaker::default();
        (0..FAILURES_TO_OPEN).for_each(|_| breaker.record_failure(at(0), false));
        (0..50).for_each(|_| breaker.record_failure(at(100), false));
        assert_eq!(breaker.admit(at(200)), Admission::Refuse { until: at(250) });
        assert_eq!(breaker.admit(at(250)), Admission::Probe);
        breaker.record_failure(at(260), false);
        assert_eq!(
            breaker.admit(at(270)),
            Admission::Refuse { until: at(250) },
            "the probe is still on its way"
        );
        breaker.record_failure(at(280), true);
        assert_eq!(breaker.admit(at(779)), Admission::Refuse { until: at(780) });
        assert_eq!(breaker.admit(at(780)), Admission::Probe);
    }
}
