//! The release: bounded in the foreground, then a debt in the background until the lease has
//! expired.

use super::lease::LeaseTerms;
use super::{Effect, FIRST_RETRY_DELAY, HoldMachine, HoldState, InFlightCall, ReleaseOutcome, ReleaseResult};
use crate::clock::Moment;
use crate::deadline::{drift_over, latest_expiry};
use crate::event::{DebtResolution, EventKind, LeaseOp, Loss};
use crate::policy::ReleaseWhen;

impl HoldMachine {
    /// Handles the end of the work.
    pub(super) fn release(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.end_overlap(now, out);
        match self.state {
            // The hold was ended by the shutdown, not by doubt: the lease is still valid and can be
            // released.
            HoldState::Lost(Loss::Shutdown) if self.lease_still_proven(now) => {
                self.state = HoldState::Releasing { attempt: 0, ambiguous: false };
                if self.in_flight.is_none() {
                    self.proceed_to_release(now, out);
                }
            }
            HoldState::Lost(_) => {
                let over = self.lease.map_or(now, |_| self.latest_expiry_of_lease());
                self.undo_late_requests(over, now, out);
                self.finish(ReleaseOutcome::Skipped, out);
            }
            HoldState::LocalOnly { .. } => {
                let held = self.take_unreported_held(now);
                out.push(Effect::Emit(EventKind::Released { held, attempts: 0 }));
                self.finish(ReleaseOutcome::Released, out);
            }
            HoldState::Unproven { not_owned: true, .. } => {
                let held = self.take_unreported_held(now);
                out.push(Effect::Emit(EventKind::AlreadyLost { held }));
                self.undo_late_requests(now, now, out);
                self.finish(ReleaseOutcome::AlreadyLost, out);
            }
            HoldState::Proven { .. } | HoldState::Unproven { .. } => {
                self.state = HoldState::Releasing { attempt: 0, ambiguous: false };
                // Wait for a renewal in flight: it must not arrive after the release.
                if self.in_flight.is_none() {
                    self.proceed_to_release(now, out);
                }
            }
            HoldState::Releasing { .. } | HoldState::Debt { .. } | HoldState::Done(_) => {}
        }
        if self.in_flight.is_none() {
            self.undo_heal(out);
        }
    }

    /// In `Releasing` with no call in flight: sends the next attempt, or leaves the lease to expire
    /// if the class states that. Returns whether the hold is being released.
    pub(super) fn proceed_to_release(&mut self, now: Moment, out: &mut Vec<Effect>) -> bool {
        let HoldState::Releasing { attempt, .. } = &mut self.state else {
            return false;
        };
        if *attempt == 0 && self.class.release.when == ReleaseWhen::Expired {
            let held = self.take_unreported_held(now);
            let until = self.latest_expiry_of_lease();
            out.push(Effect::Emit(EventKind::Kept { held }));
            self.undo_late_requests(until, now, out);
            self.finish(ReleaseOutcome::Kept { until }, out);
            return true;
        }
        *attempt += 1;
        let attempt = *attempt;
        self.in_flight = Some(InFlightCall::Release);
        out.push(Effect::Release { attempt });
        true
    }

    pub(super) fn on_release_result(&mut self, answer: ReleaseResult, now: Moment, out: &mut Vec<Effect>) {
        if self.in_flight != Some(InFlightCall::Release) {
            return;
        }
        self.in_flight = None;
        match answer {
            ReleaseResult::Released => self.on_release_confirmed(now, out),
            ReleaseResult::NotOwned => self.on_release_not_owned(now, out),
            ReleaseResult::Failed { unknown } => self.on_release_failed(unknown, now, out),
        }
    }

    fn on_release_confirmed(&mut self, now: Moment, out: &mut Vec<Effect>) {
        match self.state {
            HoldState::Releasing { attempt, .. } => {
                let held = self.take_unreported_held(now);
                out.push(Effect::Emit(EventKind::Released { held, attempts: attempt }));
                self.finish(ReleaseOutcome::Released, out);
            }
            HoldState::Debt { since, undo, .. } => {
                self.end_debt(DebtResolution::Released, since, undo, now, out)
            }
            _ => {}
        }
    }

    // After an attempt with unknown outcome, *not owned* means that the attempt was applied.
    // Otherwise another client took the lease.
    pub(super) fn on_release_not_owned(&mut self, now: Moment, out: &mut Vec<Effect>) {
        match self.state {
            HoldState::Releasing { attempt, ambiguous: true } => {
                let held = self.take_unreported_held(now);
                out.push(Effect::Emit(EventKind::Released { held, attempts: attempt }));
                self.finish(ReleaseOutcome::Released, out);
            }
            HoldState::Releasing { attempt, .. } => {
                let op = if attempt == 0 { LeaseOp::Renew } else { LeaseOp::Release };
                let held = self.take_unreported_held(now);
                out.push(Effect::Emit(EventKind::NotOwned { op }));
                out.push(Effect::Emit(EventKind::AlreadyLost { held }));
                // Only a renewal answered, so no release has left a tombstone yet.
                if attempt == 0 {
                    self.undo_late_requests(now, now, out);
                }
                self.finish(ReleaseOutcome::AlreadyLost, out);
            }
            HoldState::Debt { since, undo, .. } => {
                self.end_debt(DebtResolution::Released, since, undo, now, out)
            }
            _ => {}
        }
    }

    fn on_release_failed(&mut self, unknown: bool, now: Moment, out: &mut Vec<Effect>) {
        match &mut self.state {
            HoldState::Releasing { attempt, ambiguous } => {
                *ambiguous |= unknown;
                let attempt = *attempt;
                out.push(Effect::Emit(EventKind::ReleaseFailed { attempt, unknown }));
                if attempt < self.class.release.attempts {
                    self.proceed_to_release(now, out);
                    return;
                }
                let until = self.latest_expiry_of_lease();
                let held = self.take_unreported_held(now);
                out.push(Effect::Emit(EventKind::Debt { held, lasts: until.since(now) }));
                // The caller is answered now; the background attempts continue without it.
                out.push(Effect::Finish(ReleaseOutcome::Debt { until }));
                self.state = HoldState::Debt { since: now, until, attempt, undo: false };
                self.retry_delay = FIRST_RETRY_DELAY;
                self.back_off(now);
            }
            HoldState::Debt { .. } => self.back_off(now),
            _ => {}
        }
    }

    fn lease_still_proven(&self, now: Moment) -> bool {
        self.lease.is_some_and(|lease| now < lease.terms.deadline(lease.sent_at, &self.class))
    }

    /// The moment at which the lease has expired for certain; no call of this hold is in flight
    /// then.
    fn latest_expiry_of_lease(&self) -> Moment {
        let LeaseTerms { ttl, store_ttl, drift, .. } = self.widest_terms;
        latest_expiry(self.last_touched, store_ttl, drift_over(store_ttl, ttl, drift))
    }

    /// Ends a debt or an undo.
    pub(super) fn end_debt(
        &mut self,
        how: DebtResolution,
        since: Moment,
        undo: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let what = if undo {
            EventKind::Undone { how }
        } else {
            EventKind::DebtCleared { after: now.since(since), how }
        };
        out.push(Effect::Emit(what));
        // No release was confirmed, so the store may have no tombstone for a late request.
        if how == DebtResolution::Expired {
            self.undo_late_requests(now, now, out);
        }
        self.state = HoldState::Done(ReleaseOutcome::Released);
    }

    fn finish(&mut self, outcome: ReleaseOutcome, out: &mut Vec<Effect>) {
        self.state = HoldState::Done(outcome);
        out.push(Effect::Finish(outcome));
    }
}
