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
