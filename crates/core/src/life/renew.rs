//! Renewals, their failures, and healing of a lease that is missing.

use std::time::Duration;

use super::{ConfirmedLease, Effect, FIRST_RETRY_DELAY, HoldMachine, HoldState, InFlightCall, LeaseTerms};
use crate::clock::Moment;
use crate::deadline::clock_jump;
use crate::event::{EventKind, LeaseOp, Loss};
use crate::store::TOMBSTONE_TTL;
use crate::types::Fence;

// A store that refuses at once must not be retried in a busy loop.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(25);

// Divides one renewal interval. About 25 lines lie within the jitter of a tenth, so holds batch
// without all renewing at once.
const RENEWAL_GRID_LINES: u32 = 256;

impl HoldMachine {
    /// Schedules the regular renewal: slightly early at random, so that holds acquired together
    /// spread out. The time is then rounded down to a grid that all holds of the class share, so
    /// that renewals go out in batches.
    pub(super) fn schedule_renewal(&mut self, sent_at: Moment) {
        self.retry_delay = FIRST_RETRY_DELAY;
        self.due = match self.class.renew.every {
            Some(every) => {
                let due = (sent_at + self.jitter_down(every, 10)).as_nanos();
                let grid = u64::try_from((every / RENEWAL_GRID_LINES).as_nanos()).unwrap_or(1).max(1);
                Moment::from_nanos(due - due % grid).max(sent_at)
            }
            None => Moment::FAR,
        };
    }

    pub(super) fn on_renewed(
        &mut self,
        sent_at: Moment,
        was_left: Option<Duration>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(InFlightCall::Renew(terms)) = self.in_flight else {
            return;
        };
        self.in_flight = None;
        self.last_touched = now;
        // A release has waited for this answer.
        if self.proceed_to_release(now, out) {
            return;
        }
        let reached = terms.deadline(sent_at, &self.class);
        let before = match self.state {
            HoldState::Proven { deadline } => deadline,
            HoldState::Unproven { .. } => now,
            _ => return,
        };
        // After an unknown renewal or a TTL change, the expected remaining time is not known.
        let lease = self.lease.filter(|lease| lease.terms == self.widest_terms);
        if let (0, Some(lease), Some(left)) = (self.failures, lease, was_left) {
            let (from, to) = (lease.sent_at, lease.answered_at);
            if let Some((by, ahead)) =
                clock_jump(from, to, lease.terms.store_ttl, sent_at, now, left, &self.class)
            {
                out.push(Effect::Emit(EventKind::ClockJump { by, ahead }));
            }
        }
        self.failures = 0;
        self.lease = Some(ConfirmedLease { sent_at, answered_at: now, terms });
        let left = before.since(now).as_secs_f64() / self.class.usable().as_secs_f64().max(f64::MIN_POSITIVE);
        out.push(Effect::Emit(EventKind::Renewed { left: left.min(1.0), took: now.since(sent_at) }));
        // A renewal never moves the deadline back.
        self.become_proven(reached.max(before), sent_at, false, now, out);
    }

    /// Handles a failed renewal. Retries come sooner than the next regular renewal, at growing
    /// distances, so that the last one ends just before the deadline (ADR 0006).
    pub(super) fn on_renew_failed(&mut self, unknown: bool, now: Moment, out: &mut Vec<Effect>) {
        let Some(InFlightCall::Renew(_)) = self.in_flight else {
            return;
        };
        self.in_flight = None;
        // The renewal may have been applied at any time until now: a debt counts from here.
        if unknown {
            self.last_touched = now;
        }
        if self.proceed_to_release(now, out) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        match self.state {
            HoldState::Proven { deadline } => {
                out.push(Effect::Emit(EventKind::RenewFailed { failures: self.failures, unknown }));
                if self.failures >= self.class.renew.max_failures {
                    self.on_loss(Loss::MaxFailures, now, out);
                }
                self.due = now + self.renew_retry_delay(deadline, now);
            }
            HoldState::Unproven { .. } => {
                out.push(Effect::Emit(EventKind::RenewFailed { failures: self.failures, unknown }));
                self.back_off(now);
            }
            _ => {}
        }
    }

    /// Divides the remaining time 1 : 2 : 4 … among the attempts that are left.
    fn renew_retry_delay(&mut self, deadline: Moment, now: Moment) -> Duration {
        let left = deadline.since(now).saturating_sub(self.class.renew.timeout);
        let tries = self
            .class
            .renew
            .max_failures
            .saturating_sub(self.failures)
            // Keeps the shift below in range.
            .clamp(1, 16);
        let regular = self.class.renew.every.unwrap_or(left);
        let delay = (left / ((1 << tries) - 1)).min(regular * 3 / 4);
        self.jitter_down(delay, 4).max(MIN_RETRY_DELAY)
    }

    /// Handles *not owned*. It is definite, so the hold is lost at once and not after
    /// `max_failures`.
    pub(super) fn on_not_owned(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(InFlightCall::Renew(_)) = self.in_flight else {
            return;
        };
        self.in_flight = None;
        // No lease is left to count from or to release.
        self.lease = None;
        self.widest_terms = LeaseTerms::of(&self.class, None);
        match &mut self.state {
            HoldState::Releasing { .. } => self.on_release_not_owned(now, out),
            HoldState::Proven { .. } => {
                out.push(Effect::Emit(EventKind::NotOwned { op: LeaseOp::Renew }));
                self.on_loss(Loss::NotOwned, now, out);
            }
            HoldState::Unproven { not_owned: gone, .. } => {
                *gone = true;
                self.due = now;
                out.push(Effect::Emit(EventKind::NotOwned { op: LeaseOp::Renew }));
            }
            _ => {}
        }
    }

    /// Handles the grant of a missing lease.
    pub(super) fn on_healed(
        &mut self,
        sent_at: Moment,
        fence: Fence,
        ttl: Option<Duration>,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let Some(InFlightCall::Heal(asked)) = self.in_flight else {
            return;
        };
        self.in_flight = None;
        let terms = ttl.map_or(asked, |given| LeaseTerms {
            ttl: given.saturating_sub(asked.store_ttl.saturating_sub(asked.ttl)),
            store_ttl: given,
            ..asked
        });
        let reached = terms.deadline(sent_at, &self.class);
        let wanted = matches!(self.state, HoldState::Unproven { .. } | HoldState::LocalOnly { .. });
        if !wanted || reached <= now {
            // The hold has ended, or the grant has passed its deadline: undo it.
            self.heal_unknown = true;
            self.undo_heal(out);
            if wanted {
                self.back_off(now);
            }
            return;
        }
        self.heal_unknown = false;
        self.last_touched = now;
        self.failures = 0;
        self.fence = Some(fence);
        // For the old token, before `AdoptHealToken` replaces it.
        self.undo_late_requests(now, now, out);
        out.push(Effect::AdoptHealToken);
        // An earlier attempt to heal with the same token may still arrive.
        self.late_until = now + TOMBSTONE_TTL;
        self.widest_terms = self.widest_terms.max(terms);
        self.lease = Some(ConfirmedLease { sent_at, answered_at: now, terms });
        self.become_proven(reached, sent_at, true, now, out);
    }

    pub(super) fn on_heal_busy(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(InFlightCall::Heal(_)) = self.in_flight else {
            return;
        };
        self.in_flight = None;
        match &mut self.state {
            HoldState::Unproven { confirmed, .. } | HoldState::LocalOnly { confirmed, .. } => {
                if !std::mem::replace(confirmed, true) {
                    out.push(Effect::Emit(EventKind::OverlapConfirmed));
                }
                self.back_off(now);
                // Checked on every conflict, because the class may have changed to `fence` since
                // the last one.
                if matches!(self.state, HoldState::LocalOnly { .. }) {
                    self.on_loss(Loss::HealConflict, now, out);
                }
            }
            _ => self.undo_heal(out),
        }
    }

    pub(super) fn on_heal_failed(&mut self, unknown: bool, now: Moment, out: &mut Vec<Effect>) {
        let Some(InFlightCall::Heal(_)) = self.in_flight else {
            return;
        };
        self.in_flight = None;
        self.heal_unknown |= unknown;
        if matches!(self.state, HoldState::Unproven { .. } | HoldState::LocalOnly { .. }) {
            self.back_off(now);
        } else {
            self.undo_heal(out);
        }
    }

    /// Undoes a heal that may have been granted and is not needed.
    pub(super) fn undo_heal(&mut self, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.heal_unknown) {
            out.push(Effect::UndoHeal);
        }
    }

    /// Schedules an undo of the hold's token, if a request of it may still arrive and no release
    /// told the store.
    pub(super) fn undo_late_requests(&mut self, over: Moment, now: Moment, out: &mut Vec<Effect>) {
        // A late request for this token would re-create or extend the lease for a full TTL with no
        // owner. The undo starts when the current lease has expired, because the lease of an
        // abandoned hold is left alone.
        if now < std::mem::replace(&mut self.late_until, Moment::ZERO) {
            out.push(Effect::UndoLate { from: over });
        }
    }

    /// The lease is confirmed up to `reached`.
    fn become_proven(
        &mut self,
        reached: Moment,
        sent_at: Moment,
        granted: bool,
        now: Moment,
        out: &mut Vec<Effect>,
    ) {
        let was = self.state;
        self.state = HoldState::Proven { deadline: reached };
        self.schedule_renewal(sent_at);
        match was {
            HoldState::Unproven { since, .. } => {
                out.push(Effect::Emit(EventKind::ProvenAgain {
                    overlap: now.since(since),
                    retaken: granted,
                }));
            }
            HoldState::LocalOnly { since, .. } => {
                out.push(Effect::Emit(EventKind::Healed { after: now.since(since) }))
            }
            _ => {}
        }
        self.judge(now, out);
    }
}
