//! While holding: renewals, their failures, and getting back a lease that is not there.

use std::time::Duration;

use super::{Effect, FIRST_DELAY, Flight, Lease, Life, State, Terms};
use crate::clock::Moment;
use crate::deadline::clock_jump;
use crate::event::{Loss, Op, What};
use crate::store::TOMBSTONE;
use crate::word::Fence;

/// The least time between two attempts, so that a store that refuses at once is not hammered.
const LEAST_DELAY: Duration = Duration::from_millis(25);

/// Lines of the grid in one renewal interval: about 25 of them lie within the jitter.
const GRID: u32 = 256;

impl Life {
    /// The regular renewal, a little early at random so that holds taken together do not stay in step; then back to
    /// the last line of a grid that all holds of the class share, so that a keeper's renewals go out in batches.
    pub(super) fn schedule_renewal(&mut self, sent_at: Moment) {
        self.delay = FIRST_DELAY;
        self.due = match self.class.renew.every {
            Some(every) => {
                let due = (sent_at + self.shorten(every, 10)).as_nanos();
                let grid = u64::try_from((every / GRID).as_nanos()).unwrap_or(1).max(1);
                Moment::from_nanos(due - due % grid).max(sent_at)
            }
            None => Moment::FAR,
        };
    }

    pub(super) fn renewed(
        &mut self,
        sent_at: Moment,
        was_left: Option<Duration>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(Flight::Renew(terms)) = self.flight else {
            return;
        };
        self.flight = None;
        self.touched = now;
        if self.proceed_to_release(now, out) {
            return;
        }
        let reached = terms.deadline(sent_at, &self.class);
        let before = match self.state {
            State::Proven { deadline } => deadline,
            State::Unproven { .. } => now,
            _ => return,
        };
        // After an unknown renewal, or with a TTL that has changed, nobody can say what should be left.
        let lease = self.lease.filter(|lease| lease.terms == self.widest);
        if let (0, Some(lease), Some(left)) = (self.failures, lease, was_left) {
            let (from, to) = (lease.sent_at, lease.answered_at);
            if let Some((by, ahead)) = clock_jump(from, to, lease.terms.kept, sent_at, now, left, &self.class)
            {
                out.push(Effect::Emit(What::ClockJump { by, ahead }));
            }
        }
        self.failures = 0;
        self.lease = Some(Lease {
            sent_at,
            answered_at: now,
            terms,
        });
        let left = before.since(now).as_secs_f64() / self.class.usable().as_secs_f64().max(f64::MIN_POSITIVE);
        out.push(Effect::Emit(What::Renewed {
            left: left.min(1.0),
            took: now.since(sent_at),
        }));
        self.prove(reached.max(before), sent_at, false, now, out);
    }

    /// Errors are retried sooner than the next regular renewal, at growing distances, so that the last strike falls
    /// just before the deadline and not after it.
    pub(super) fn renew_failed(&mut self, unknown: bool, now: Moment, out: &mut Vec<Effect>) {
        let Some(Flight::Renew(_)) = self.flight else {
            return;
        };
        self.flight = None;
        if unknown {
            self.touched = now;
        }
        if self.proceed_to_release(now, out) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        match self.state {
            State::Proven { deadline } => {
                out.push(Effect::Emit(What::RenewFailed {
                    failures: self.failures,
                    unknown,
                }));
                if self.failures >= self.class.renew.max_failures {
                    self.lose(Loss::MaxFailures, now, out);
                }
                self.due = now + self.next_try(deadline, now);
            }
            State::Unproven { .. } => {
                out.push(Effect::Emit(What::RenewFailed {
                    failures: self.failures,
                    unknown,
                }));
                self.back_off(now);
            }
            _ => {}
        }
    }

    /// The remaining time is parted 1 : 2 : 4 … among the attempts that are left.
    fn next_try(&mut self, deadline: Moment, now: Moment) -> Duration {
        let left = deadline.since(now).saturating_sub(self.class.renew.timeout);
        let tries = self
            .class
            .renew
            .max_failures
            .saturating_sub(self.failures)
            .clamp(1, 16);
        let regular = self.class.renew.every.unwrap_or(left);
        let delay = (left / ((1 << tries) - 1)).min(regular * 3 / 4);
        self.shorten(delay, 4).max(LEAST_DELAY)
    }

    /// Definite: lost now, not at the third strike.
    pub(super) fn not_owned(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(Flight::Renew(_)) = self.flight else {
            return;
        };
        self.flight = None;
        // There is nothing left to count from, or to give back.
        self.lease = None;
        self.widest = Terms::of(&self.class, None);
        match &mut self.state {
            State::Releasing { .. } => self.release_answer_not_owned(now, out),
            State::Proven { .. } => {
                out.push(Effect::Emit(What::NotOwned { op: Op::Renew }));
                self.lose(Loss::NotOwned, now, out);
            }
            State::Unproven { gone, .. } => {
                *gone = true;
                self.due = now;
                out.push(Effect::Emit(What::NotOwned { op: Op::Renew }));
            }
            _ => {}
        }
    }

    /// The lease that was missing is granted (again).
    pub(super) fn healed(
        &mut self,
        sent_at: Moment,
        fence: Fence,
        ttl: Option<Duration>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(Flight::Heal(asked)) = self.flight else {
            return;
        };
        self.flight = None;
        let terms = ttl.map_or(asked, |given| Terms {
            ttl: given.saturating_sub(asked.kept.saturating_sub(asked.ttl)),
            kept: given,
            ..asked
        });
        let reached = terms.deadline(sent_at, &self.class);
        let wanted = matches!(self.state, State::Unproven { .. } | State::LocalOnly { .. });
        if !wanted || reached <= now {
            // Nobody needs it any more, or it is over before it can be used.
            self.heal_unknown = true;
            self.give_back(out);
            if wanted {
                self.back_off(now);
            }
            return;
        }
        self.heal_unknown = false;
        self.touched = now;
        self.failures = 0;
        self.fence = Some(fence);
        self.forget(now, now, out);
        out.push(Effect::TakeOver);
        // An earlier try to heal may still be on its way.
        self.late_until = now + TOMBSTONE;
        self.widest = self.widest.widest(terms);
        self.lease = Some(Lease {
            sent_at,
            answered_at: now,
            terms,
        });
        self.prove(reached, sent_at, true, now, out);
    }

    pub(super) fn heal_busy(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(Flight::Heal(_)) = self.flight else {
            return;
        };
        self.flight = None;
        match &mut self.state {
            State::Unproven { confirmed, .. } | State::LocalOnly { confirmed, .. } => {
                if !std::mem::replace(confirmed, true) {
                    out.push(Effect::Emit(What::OverlapConfirmed));
                }
                self.back_off(now);
                // Each time: the class may have begun to fence since.
                if matches!(self.state, State::LocalOnly { .. }) {
                    self.lose(Loss::HealConflict, now, out);
                }
            }
            _ => self.give_back(out),
        }
    }

    pub(super) fn heal_failed(&mut self, unknown: bool, now: Moment, out: &mut Vec<Effect>) {
        let Some(Flight::Heal(_)) = self.flight else {
            return;
        };
        self.flight = None;
        self.heal_unknown |= unknown;
        if matches!(self.state, State::Unproven { .. } | State::LocalOnly { .. }) {
            self.back_off(now);
        } else {
            self.give_back(out);
        }
    }

    /// The hold is over or has no use for it: a heal that may have been granted is undone.
    pub(super) fn give_back(&mut self, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.heal_unknown) {
            out.push(Effect::GiveBack);
        }
    }

    /// The hold is done with its token, and the store was not told so. What of it still arrives keeps the name shut for nobody: for
    /// a whole TTL more, whether it finds the lease, which it extends, or none. That is undone once the lease should be over. Not
    /// before: the lease of a hold that was abandoned is left alone.
    pub(super) fn forget(&mut self, over: Moment, now: Moment, out: &mut Vec<Effect>) {
        if now < std::mem::replace(&mut self.late_until, Moment::ZERO) {
            out.push(Effect::Forget { from: over });
        }
    }

    /// The lease is confirmed up to `reached`.
    fn prove(&mut self, reached: Moment, sent_at: Moment, granted: bool, now: Moment, out: &mut Vec<Effect>) {
        let was = self.state;
        self.state = State::Proven { deadline: reached };
        self.schedule_renewal(sent_at);
        match was {
            State::Unproven { since, .. } => {
                out.push(Effect::Emit(What::ProvenAgain {
                    overlap: now.since(since),
                    retaken: granted,
                }));
            }
            State::LocalOnly { since, .. } => out.push(Effect::Emit(What::Healed {
                after: now.since(since),
            })),
            _ => {}
        }
        self.judge(now, out);
    }
}
