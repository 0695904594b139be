//! One acquire as a pure state machine: ask, wait, ask again, give up.
//!
//! A time-out is not a no: an ask that was not answered may have been granted. The machine then asks again with the
//! same token, which a store answers with the same grant, or gives up and says that an undo is owed.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::deadline::deadline;
use crate::policy::{Class, Enforcement, OnError};
use crate::store::{Answer, Busy, Cause, Failure, Grant};

/// The longest pause between two asks of a waiter: a lost hint costs no more than this.
pub const POLL: Duration = Duration::from_secs(1);
/// How long a waiter's registration outlives its last ask.
pub const REGISTERED: Duration = Duration::from_secs(4);

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Ask the store, for at most `within`.
    Ask {
        /// The budget of this call.
        within: Duration,
        /// Register as a waiter if busy.
        queue: Option<Duration>,
    },
    /// Sleep until then, or until woken; then [`Acquiring::rested`].
    Rest {
        /// The end of the sleep.
        until: Moment,
    },
    /// It is over.
    End(End),
}

/// How an acquire ended.
#[derive(Debug, PartialEq)]
pub enum End {
    /// Granted.
    Held {
        /// Taken before the confirmed ask was sent.
        sent_at: Moment,
        /// Fence and, if it differs, TTL.
        grant: Grant,
    },
    /// Someone else has it.
    Busy(Busy),
    /// The store could not be asked; the class is fail-closed.
    Unavailable {
        /// Why.
        cause: Cause,
        /// What the store said last.
        message: String,
    },
    /// The store could not be asked; the class is fail-open (or only a shadow of fail-closed).
    FallBack {
        /// Why.
        cause: Cause,
        /// What the store said last.
        message: String,
    },
    /// A grant came too late to be used.
    TooLate,
}

/// One acquire.
#[derive(Debug)]
pub struct Acquiring {
    /// What is asked for, and by which its time counts.
    class: Arc<Class>,
    /// A store that cannot be asked does not keep it from running.
    open: bool,
    started: Moment,
    /// The end of waiting for a busy name.
    wait_until: Moment,
    /// When the store last stopped answering: the class's time-out counts from here.
    failing_since: Option<Moment>,
    /// Failures since the last answer.
    failures: u32,
    /// The next delay, before jitter.
    delay: Duration,
    /// The last answer, and when it came.
    last_busy: Option<(Busy, Moment)>,
    /// An ask may have been applied without our knowing, or may still arrive.
    ambiguous: bool,
    /// A waiter entry may be in the store.
    queued: bool,
    /// The store can hand over: register as a waiter.
    can_queue: bool,
}

impl Acquiring {
    /// An acquire that begins now. `wait` is the request's, which may differ from the class's.
    #[must_use]
    pub fn new(class: Arc<Class>, wait: Duration, can_queue: bool, now: Moment) -> Self {
        let delay = class.acquire.retry.min(longest());
        Self {
            open: opens(&class),
            class,
            started: now,
            wait_until: now + wait,
            failing_since: None,
            failures: 0,
            delay,
            last_busy: None,
            ambiguous: false,
            queued: false,
            can_queue,
        }
    }

    /// When it began.
    #[must_use]
    pub fn started(&self) -> Moment {
        self.started
    }

    /// The class has changed since it began. What was asked for stays; how an error ends is for the class in force to say.
    pub fn policy_changed(&mut self, class: &Class) {
        self.open = opens(class);
    }

    /// An error ends in a hold that is local only, as the class in force says.
    #[must_use]
    pub fn falls_back(&self) -> bool {
        self.open
    }

    /// The next ask.
    #[must_use]
    pub fn ask(&mut self, now: Moment) -> Next {
        let timeout = self.class.acquire.timeout;
        let mut within = match self.failing_since {
            Some(since) => timeout.saturating_sub(now.since(since)),
            None => timeout,
        };
        if self.last_busy.is_some() {
            // The wait ends on time even if the store does not answer this one.
            within = within.min(self.wait_until.since(now));
        }
        let queue = (self.can_queue && now < self.wait_until).then_some(REGISTERED);
        self.queued |= queue.is_some();
        Next::Ask { within, queue }
    }

    /// The store answered an ask that was sent at `sent_at`.
    #[must_use]
    pub fn answered(&mut self, answer: Answer, sent_at: Moment, now: Moment, random: u64) -> Next {
        self.failing_since = None;
        self.failures = 0;
        match answer {
            Answer::Granted(grant) => {
                let ttl = self.class.counted(grant.ttl);
                if deadline(sent_at, ttl, &self.class) <= now {
                    self.ambiguous = true; // it is ours and must be given back
                    return Next::End(End::TooLate);
                }
                self.queued = false;
                Next::End(End::Held { sent_at, grant })
            }
            Answer::Busy(busy) => {
                let remaining = busy.remaining;
                self.last_busy = Some((busy, now));
                if now >= self.wait_until {
                    return self.give_up(now);
                }
                // The end of the lease, and a little at random: all who wait for it would ask at once.
                let over = remaining.map_or(Duration::MAX, |left| {
                    left + Duration::from_millis(1 + random % 20)
                });
                let pause = self.pause(random).min(over);
                Next::Rest {
                    until: (now + pause).min(self.wait_until),
                }
            }
            // Only an undo of ours voids a token, and a token that was undone is not asked with again.
            Answer::Void => self.fail(
                Cause::Corrupt,
                "the store has voided this acquire's token".to_owned(),
                now,
            ),
        }
    }

    /// The store did not answer.
    #[must_use]
    pub fn failed(&mut self, failure: &Failure, sent_at: Moment, now: Moment, random: u64) -> Next {
        self.ambiguous |= failure.unknown;
        self.failures += 1;
        let since = *self.failing_since.get_or_insert(sent_at);
        if self.last_busy.is_some() && now >= self.wait_until {
            return self.give_up(now);
        }
        // A class that tries once asks again only to learn what became of an unknown.
        let one_try = self.wait_until <= self.started;
        let again = if one_try {
            failure.unknown && self.failures < 2
        } else {
            true
        };
        let limit = since + self.class.acquire.timeout;
        let until = now + self.pause(random);
        if !failure.transient() || !again || until >= limit {
            return self.fail(failure.cause, failure.message().to_owned(), now);
        }
        Next::Rest {
            until: if self.last_busy.is_some() {
                until.min(self.wait_until)
            } else {
                until
            },
        }
    }

    /// The breaker did not let the ask through: nothing was sent.
    #[must_use]
    pub fn refused(&mut self, why: String, now: Moment) -> Next {
        self.fail(Cause::Unreachable, why, now)
    }

    /// A rest is over, or a hint has come.
    #[must_use]
    pub fn rested(&mut self, now: Moment) -> Next {
        if self.last_busy.is_some() && now >= self.wait_until {
            self.give_up(now)
        } else {
            self.ask(now)
        }
    }

    /// Something of it may be left in the store if it does not end in a hold.
    #[must_use]
    pub fn owes_undo(&self) -> bool {
        self.ambiguous || self.queued
    }

    /// A repeated or unanswered ask may still arrive: its hold must leave a tombstone when it releases.
    #[must_use]
    pub fn ambiguous(&self) -> bool {
        self.ambiguous
    }

    fn give_up(&mut self, now: Moment) -> Next {
        let mut busy = Busy::default();
        if let Some((last, seen)) = self.last_busy.take() {
            busy = last;
            // As of now, not of the last poll.
            busy.remaining = busy.remaining.map(|left| left.saturating_sub(now.since(seen)));
        }
        Next::End(End::Busy(busy))
    }

    fn fail(&mut self, cause: Cause, message: String, now: Moment) -> Next {
        // Fail-open is for a store that cannot be asked, never for contention: as long as the lease that was last
        // seen lasts, running would be a known overlap.
        let held = |(busy, seen): &(Busy, Moment)| busy.remaining.is_none_or(|left| now < *seen + left);
        if self.open && self.last_busy.as_ref().is_some_and(held) {
            return self.give_up(now);
        }
        Next::End(if self.open {
            End::FallBack { cause, message }
        } else {
            End::Unavailable { cause, message }
        })
    }

    /// The next delay: grows by half each time, jittered from half to one and a half.
    fn pause(&mut self, random: u64) -> Duration {
        let pause = self
            .delay
            .mul_f64(0.5 + (random >> 11) as f64 / (1_u64 << 53) as f64);
        self.delay = (self.delay * 3 / 2).min(longest());
        pause.max(Duration::from_millis(1))
    }
}

/// The longest delay before jitter, the first one included: with its greatest jitter it is one poll, not more.
fn longest() -> Duration {
    POLL * 2 / 3
}

/// Fail-open, or only the shadow of fail-closed.
fn opens(class: &Class) -> bool {
    class.acquire.on_error == OnError::FailOpen || class.mode == Enforcement::Shadow
}
