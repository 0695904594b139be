//! Giving back: bounded in the foreground, then as a debt in the background until the lease is over anyway.

use super::{Effect, FIRST_DELAY, Flight, Life, Outcome, ReleaseAnswer, State};
use crate::clock::Moment;
use crate::deadline::surely_over;
use crate::event::{Cleared, Loss, Op, What};
use crate::policy::ReleaseWhen;

impl Life {
    /// The work is done.
    pub(super) fn release(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.end_overlap(now, out);
        match self.state {
            // Ended by the client's shutdown, not by doubt: the lease is still ours to give back.
            State::Lost(Loss::Shutdown) if self.still_ours(now) => {
                self.state = State::Releasing {
                    attempt: 0,
                    ambiguous: false,
                };
                if self.flight.is_none() {
                    self.proceed_to_release(now, out);
                }
            }
            State::Lost(_) => {
                let over = self.lease.map_or(now, |_| self.over_by());
                self.forget(over, now, out);
                self.finish(Outcome::Skipped, out);
            }
            State::LocalOnly { .. } => {
                let held = self.held(now);
                out.push(Effect::Emit(What::Released { held, attempts: 0 }));
                self.finish(Outcome::Released, out);
            }
            State::Unproven { gone: true, .. } => {
                let held = self.held(now);
                out.push(Effect::Emit(What::AlreadyLost { held }));
                self.forget(now, now, out);
                self.finish(Outcome::AlreadyLost, out);
            }
            State::Proven { .. } | State::Unproven { .. } => {
                self.state = State::Releasing {
                    attempt: 0,
                    ambiguous: false,
                };
                // A renewal on its way is waited for: none may be left that could arrive after the release.
                if self.flight.is_none() {
                    self.proceed_to_release(now, out);
                }
            }
            State::Releasing { .. } | State::Owing { .. } | State::Done(_) => {}
        }
        if self.flight.is_none() {
            self.give_back(out);
        }
    }

    /// In `Releasing` with nothing on its way: send the next attempt, or leave the lease to run out if the class wants
    /// that. Answers whether the hold is being released.
    pub(super) fn proceed_to_release(&mut self, now: Moment, out: &mut Vec<Effect>) -> bool {
        let State::Releasing { attempt, .. } = &mut self.state else {
            return false;
        };
        if *attempt == 0 && self.class.release.when == ReleaseWhen::Expired {
            let held = self.held(now);
            let until = self.over_by();
            out.push(Effect::Emit(What::Kept { held }));
            self.forget(until, now, out);
            self.finish(Outcome::Kept { until }, out);
            return true;
        }
        *attempt += 1;
        let attempt = *attempt;
        self.flight = Some(Flight::Release);
        out.push(Effect::Release { attempt });
        true
    }

    pub(super) fn release_answer(&mut self, answer: ReleaseAnswer, now: Moment, out: &mut Vec<Effect>) {
        if self.flight != Some(Flight::Release) {
            return;
        }
        self.flight = None;
        match answer {
            ReleaseAnswer::Released => self.release_answer_released(now, out),
            ReleaseAnswer::NotOwned => self.release_answer_not_owned(now, out),
            ReleaseAnswer::Failed { unknown } => self.release_answer_failed(unknown, now, out),
        }
    }

    fn release_answer_released(&mut self, now: Moment, out: &mut Vec<Effect>) {
        match self.state {
            State::Releasing { attempt, .. } => {
                let held = self.held(now);
                out.push(Effect::Emit(What::Released {
                    held,
                    attempts: attempt,
                }));
                self.finish(Outcome::Released, out);
            }
            State::Owing { since, undo, .. } => self.cleared(Cleared::Released, since, undo, now, out),
            _ => {}
        }
    }

    /// After an ambiguous attempt it means that that one was applied; otherwise someone else took the lease.
    pub(super) fn release_answer_not_owned(&mut self, now: Moment, out: &mut Vec<Effect>) {
        match self.state {
            State::Releasing {
                attempt,
                ambiguous: true,
            } => {
                let held = self.held(now);
                out.push(Effect::Emit(What::Released {
                    held,
                    attempts: attempt,
                }));
                self.finish(Outcome::Released, out);
            }
            State::Releasing { attempt, .. } => {
                let op = if attempt == 0 { Op::Renew } else { Op::Release };
                let held = self.held(now);
                out.push(Effect::Emit(What::NotOwned { op }));
                out.push(Effect::Emit(What::AlreadyLost { held }));
                if attempt == 0 {
                    self.forget(now, now, out);
                }
                self.finish(Outcome::AlreadyLost, out);
            }
            State::Owing { since, undo, .. } => self.cleared(Cleared::Released, since, undo, now, out),
            _ => {}
        }
    }

    fn release_answer_failed(&mut self, unknown: bool, now: Moment, out: &mut Vec<Effect>) {
        match &mut self.state {
            State::Releasing { attempt, ambiguous } => {
                *ambiguous |= unknown;
                let attempt = *attempt;
                out.push(Effect::Emit(What::ReleaseFailed { attempt, unknown }));
                if attempt < self.class.release.attempts {
                    self.proceed_to_release(now, out);
                    return;
                }
                let until = self.over_by();
                let held = self.held(now);
                out.push(Effect::Emit(What::Debt {
                    held,
                    lasts: until.since(now),
                }));
                out.push(Effect::Finish(Outcome::Debt { until }));
                self.state = State::Owing {
                    since: now,
                    until,
                    attempt,
                    undo: false,
                };
                self.delay = FIRST_DELAY;
                self.back_off(now);
            }
            State::Owing { .. } => self.back_off(now),
            _ => {}
        }
    }

    fn still_ours(&self, now: Moment) -> bool {
        self.lease
            .is_some_and(|lease| now < lease.terms.deadline(lease.sent_at, &self.class))
    }

    /// The store has surely let go of the lease by then: nothing of this hold is on its way any more.
    fn over_by(&self) -> Moment {
        surely_over(self.touched, self.widest.kept, self.widest.drift)
    }

    /// A debt, or an undo, is over.
    pub(super) fn cleared(
        &mut self,
        how: Cleared,
        since: Moment,
        undo: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let what = if undo {
            What::Undone { how }
        } else {
            What::DebtCleared {
                after: now.since(since),
                how,
            }
        };
        out.push(Effect::Emit(what));
        if how == Cleared::Expired {
            self.forget(now, now, out);
        }
        self.state = State::Done(Outcome::Released);
    }

    fn finish(&mut self, outcome: Outcome, out: &mut Vec<Effect>) {
        self.state = State::Done(outcome);
        out.push(Effect::Finish(outcome));
    }
}
