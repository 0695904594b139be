//! One acquire as a pure state machine: request, wait, retry, give up.
//!
//! A timeout is not a refusal: a request without a response may have been granted. The machine then
//! retries with the same token, which a store answers with the same grant. Or it gives up and
//! reports that an undo is needed.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::deadline::deadline;
use crate::policy::{Class, Enforcement, OnError};
use crate::store::{AcquireResponse, BusyLease, Grant, StoreError, StoreErrorKind};

/// The maximum delay between two requests of a waiter: a lost wake-up costs no more than this.
pub const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the store keeps a waiter after its last request. Several poll intervals, so that one
/// lost retry does not cost the waiter its position.
pub const WAITER_REGISTRATION_TTL: Duration = Duration::from_secs(4);

/// The next step of the driver.
#[derive(Debug, PartialEq)]
pub enum AcquireStep {
    /// Send the request, with the timeout `within`.
    Send {
        /// The timeout of this call.
        within: Duration,
        /// Register as a waiter for this long if busy.
        queue: Option<Duration>,
    },
    /// Sleep until then or until a wake-up; then call [`AcquireMachine::on_wake`].
    Sleep {
        /// When to retry without a wake-up.
        until: Moment,
    },
    /// The acquire ended.
    End(AcquireOutcome),
}

/// The result of an acquire.
#[derive(Debug, PartialEq)]
pub enum AcquireOutcome {
    /// The lease was granted and can still be used.
    Held {
        /// Send time of the confirmed request; the deadline counts from it.
        sent_at: Moment,
        /// The fence, and the TTL if it differs from the request.
        grant: Grant,
    },
    /// Another holder kept the lock until the wait ended.
    Busy(BusyLease),
    /// The store did not answer and the class is fail-closed.
    Unavailable {
        /// The kind of the last store error.
        cause: StoreErrorKind,
        /// The text of the last store error.
        message: String,
    },
    /// The store did not answer and the class is fail-open, or a shadow of fail-closed.
    FallBack {
        /// The kind of the last store error.
        cause: StoreErrorKind,
        /// The text of the last store error.
        message: String,
    },
    /// The grant arrived after its own deadline.
    TooLate,
}

/// The state of one acquire.
#[derive(Debug)]
pub struct AcquireMachine {
    // The class at the beginning: the request was made with its TTL and timeouts.
    class: Arc<Class>,
    // A store outage ends in a local-only hold. Follows the class in force.
    fail_open: bool,
    started: Moment,
    wait_until: Moment,
    // Send time of the first failure since the last response: the class's timeout counts from here.
    failing_since: Option<Moment>,
    failures: u32,
    delay: Duration,
    last_busy: Option<(BusyLease, Moment)>,
    // A request may have been granted without a response, or may still arrive.
    maybe_granted: bool,
    // A request was sent and its call has not ended. An acquire that is dropped now needs an undo.
    in_flight: bool,
    queued: bool,
    can_queue: bool,
    expiry_lag: Duration,
}

impl AcquireMachine {
    /// Starts an acquire. `wait` is the rest of the request's wait, which may differ from the
    /// class's.
    #[must_use]
    pub fn new(class: Arc<Class>, wait: Duration, can_queue: bool, now: Moment) -> Self {
        let delay = class.acquire.retry.min(max_delay());
        Self {
            fail_open: fails_open(&class),
            class,
            started: now,
            wait_until: now + wait,
            failing_since: None,
            failures: 0,
            delay,
            last_busy: None,
            maybe_granted: false,
            in_flight: false,
            queued: false,
            can_queue,
            expiry_lag: Duration::ZERO,
        }
    }

    /// Sets the store's [`Capabilities::expiry_lag`](crate::store::Capabilities::expiry_lag).
    #[must_use]
    pub fn with_expiry_lag(mut self, expiry_lag: Duration) -> Self {
        self.expiry_lag = expiry_lag;
        self
    }

    /// When the acquire began.
    #[must_use]
    pub fn started(&self) -> Moment {
        self.started
    }

    /// Follows a policy change. The terms of the request stay; only the reaction to an error
    /// follows the class in force.
    pub fn policy_changed(&mut self, class: &Class) {
        self.fail_open = fails_open(class);
    }

    /// Returns true if an error ends in a local-only hold under the class in force.
    #[must_use]
    pub fn falls_back(&self) -> bool {
        self.fail_open
    }

    /// Returns the next request, with its timeout.
    #[must_use]
    pub fn next_request(&mut self, now: Moment) -> AcquireStep {
        let timeout = self.class.acquire.timeout;
        let mut within = match self.failing_since {
            Some(since) => timeout.saturating_sub(now.since(since)),
            None => timeout,
        };
        if self.last_busy.is_some() {
            // The wait must end on time even if this request gets no response.
            within = within.min(self.wait_until.since(now));
        }
        let queue = (self.can_queue && now < self.wait_until).then_some(WAITER_REGISTRATION_TTL);
        self.queued |= queue.is_some();
        AcquireStep::Send { within, queue }
    }

    /// Records that the request of the last [`AcquireStep::Send`] is on its way.
    pub fn on_sent(&mut self) {
        self.in_flight = true;
    }

    /// Handles a response to the request sent at `sent_at`.
    #[must_use]
    pub fn on_response(
        &mut self,
        answer: AcquireResponse,
        sent_at: Moment,
        now: Moment,
        random: u64,
    ) -> AcquireStep {
        self.in_flight = false;
        self.failing_since = None;
        self.failures = 0;
        match answer {
            AcquireResponse::Granted(grant) => {
                let ttl = self.class.granted_ttl(grant.ttl);
                // The lease belongs to this token but cannot be used: it must be released.
                if deadline(sent_at, ttl, &self.class) <= now {
                    self.maybe_granted = true;
                    return AcquireStep::End(AcquireOutcome::TooLate);
                }
                self.queued = false;
                AcquireStep::End(AcquireOutcome::Held { sent_at, grant })
            }
            AcquireResponse::Busy(busy) => {
                let remaining = busy.remaining;
                self.last_busy = Some((busy, now));
                if now >= self.wait_until {
                    return self.end_busy(now);
                }
                // Retry when the store lets go of the expired lease, plus jitter: otherwise all its
                // waiters would retry at once.
                let jitter = Duration::from_millis(1 + random % 20);
                let over = remaining.map_or(Duration::MAX, |left| left + self.expiry_lag + jitter);
                let pause = self.next_delay(random).min(over);
                AcquireStep::Sleep { until: (now + pause).min(self.wait_until) }
            }
            // Only an undo by this client voids a token, and an undone token is not used again.
            AcquireResponse::Void => self.end_with_error(
                StoreErrorKind::Corrupt,
                "the store has voided this acquire's token".to_owned(),
                now,
            ),
        }
    }

    /// Handles a failed request.
    #[must_use]
    pub fn on_error(
        &mut self,
        failure: &StoreError,
        sent_at: Moment,
        now: Moment,
        random: u64,
    ) -> AcquireStep {
        self.in_flight = false;
        self.maybe_granted |= failure.unknown;
        self.failures += 1;
        let since = *self.failing_since.get_or_insert(sent_at);
        if self.last_busy.is_some() && now >= self.wait_until {
            return self.end_busy(now);
        }
        // A class with a single try retries once, only to learn the outcome of an unknown request.
        let one_try = self.wait_until <= self.started;
        let again = if one_try { failure.unknown && self.failures < 2 } else { true };
        let limit = since + self.class.acquire.timeout;
        let until = now + self.next_delay(random);
        if !failure.is_transient() || !again || until >= limit {
            return self.end_with_error(failure.kind, failure.message().to_owned(), now);
        }
        AcquireStep::Sleep {
            until: if self.last_busy.is_some() { until.min(self.wait_until) } else { until },
        }
    }

    /// Handles a refusal by the breaker: nothing was sent.
    #[must_use]
    pub fn on_refused(&mut self, why: String, now: Moment) -> AcquireStep {
        self.end_with_error(StoreErrorKind::Unreachable, why, now)
    }

    /// Handles the end of a sleep or a wake-up.
    #[must_use]
    pub fn on_wake(&mut self, now: Moment) -> AcquireStep {
        if self.last_busy.is_some() && now >= self.wait_until {
            self.end_busy(now)
        } else {
            self.next_request(now)
        }
    }

    /// Returns true if a lease or waiter may be left in the store when the acquire ends without a
    /// hold, or is dropped now.
    #[must_use]
    pub fn needs_undo(&self) -> bool {
        self.in_flight || self.maybe_granted || self.queued
    }

    /// Returns true if a retried or unanswered request may still arrive. The hold's release must
    /// then leave a tombstone.
    #[must_use]
    pub fn maybe_granted(&self) -> bool {
        self.maybe_granted
    }

    fn end_busy(&mut self, now: Moment) -> AcquireStep {
        let mut busy = BusyLease::default();
        if let Some((last, seen)) = self.last_busy.take() {
            busy = last;
            // Relative to now, not to the last response.
            busy.remaining = busy.remaining.map(|left| left.saturating_sub(now.since(seen)));
        }
        AcquireStep::End(AcquireOutcome::Busy(busy))
    }

    fn end_with_error(&mut self, cause: StoreErrorKind, message: String, now: Moment) -> AcquireStep {
        // Fail-open covers an outage, never contention: while the last seen lease is live, running
        // would be a known overlap.
        let held = |(busy, seen): &(BusyLease, Moment)| busy.remaining.is_none_or(|left| now < *seen + left);
        if self.fail_open && self.last_busy.as_ref().is_some_and(held) {
            return self.end_busy(now);
        }
        AcquireStep::End(if self.fail_open {
            AcquireOutcome::FallBack { cause, message }
        } else {
            AcquireOutcome::Unavailable { cause, message }
        })
    }

    /// The next delay: grows by half each time, with jitter from half to one and a half.
    fn next_delay(&mut self, random: u64) -> Duration {
        let pause = self.delay.mul_f64(0.5 + (random >> 11) as f64 / (1_u64 << 53) as f64);
        self.delay = (self.delay * 3 / 2).min(max_delay());
        pause.max(Duration::from_millis(1))
    }
}

// Applies to the first delay too. With the largest jitter it is one poll interval.
fn max_delay() -> Duration {
    MAX_POLL_INTERVAL * 2 / 3
}

// A shadow policy must not refuse work, so it acts like fail-open.
fn fails_open(class: &Class) -> bool {
    class.acquire.on_error == OnError::FailOpen || class.mode == Enforcement::Shadow
}
