//! One hold as a pure state machine: `step(input, now)` yields effects. No I/O, no clock, no task.
//!
//! Every rule about a hold stands in one arm of this machine. Simulation, model and property tests
//! therefore run the real code; the async keeper (`keeper.rs`) only executes the effects. `step` is
//! total: every input in every state has a defined meaning, late and repeated answers included.

mod lease;
mod policy;
mod release;
mod renew;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lease::{ConfirmedLease, InFlightCall, LeaseTerms};
pub use state::{Effect, HoldState, Input, ReleaseOutcome, ReleaseResult};

use crate::clock::Moment;
use crate::deadline::{Deadline, drift_over, latest_expiry};
use crate::event::{EventKind, Loss};
use crate::hold::HoldStatus;
use crate::policy::{Class, Enforcement, OnFailure};
use crate::rng::split_mix;
use crate::store::{Grant, TOMBSTONE_TTL};
use crate::types::Fence;

// For retries without a deadline to fit attempts before; doubles from there.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
// Bounds the retries of heals, unproven renewals and debts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The state machine of one hold.
#[derive(Debug)]
pub struct HoldMachine {
    class: Arc<Class>,
    state: HoldState,
    fence: Option<Fence>,
    started: Moment,
    // Held time in an earlier process, for `max_hold` and the reports.
    earlier_age: Duration,
    // Held time that an event has reported: no second is reported twice.
    reported_held: Duration,
    lease: Option<ConfirmedLease>,
    // The last moment at which the store may have extended the lease: debts count from it.
    last_touched: Moment,
    // The longest terms of any request that may have been applied, confirmed or not.
    widest_terms: LeaseTerms,
    in_flight: Option<InFlightCall>,
    // A heal may have been granted without a response.
    heal_unknown: bool,
    // Until when an unanswered request of the token may arrive; zero if every one was answered.
    late_until: Moment,
    due: Moment,
    retry_delay: Duration,
    failures: u32,
    // The shadow policy has reported this hold; it reports each hold once.
    shadow_reported: bool,
    // State of SplitMix64: jitter without an outside source, so that a machine replays from its
    // seed.
    seed: u64,
}

impl HoldMachine {
    /// A hold whose lease was granted to a request sent at `sent_at`.
    #[must_use]
    pub fn granted(class: Arc<Class>, seed: u64, sent_at: Moment, grant: Grant, now: Moment) -> Self {
        let terms = LeaseTerms::of(&class, grant.ttl);
        let lease = ConfirmedLease { sent_at, answered_at: now, terms };
        let state = HoldState::Proven { deadline: terms.deadline(sent_at, &class) };
        let mut life = Self::new(class, seed, state, now);
        life.fence = Some(grant.fence);
        life.lease = Some(lease);
        life.widest_terms = terms;
        life.schedule_renewal(sent_at);
        life
    }

    /// Adds the time for which an earlier process held it. A duration and not a moment: this clock
    /// may not reach back so far.
    #[must_use]
    pub fn with_earlier_age(mut self, age: Duration) -> Self {
        self.earlier_age = age;
        self
    }

    /// States that an unanswered request of the token may arrive until `until`.
    #[must_use]
    pub fn with_late_until(mut self, until: Moment) -> Self {
        self.late_until = until;
        self
    }

    /// A hold with a local lock only. `asked` states that its acquire may have been granted, or may
    /// have left a waiter. Healing then uses that acquire's token, so that its own lease does not
    /// look foreign.
    #[must_use]
    pub fn local_only(class: Arc<Class>, seed: u64, asked: bool, now: Moment) -> Self {
        let mut life = Self::new(class, seed, HoldState::LocalOnly { since: now, confirmed: false }, now);
        life.heal_unknown = asked;
        life.back_off(now);
        life
    }

    /// The undo of an acquire that ended without a hold but may have been granted, or may have left
    /// a waiter. It starts at `from` and is retried like a debt until the store has let go for
    /// certain. A delayed request can still arrive, and its lease lives from then on.
    #[must_use]
    pub fn undo(class: Arc<Class>, seed: u64, from: Moment) -> Self {
        let arrives = from + TOMBSTONE_TTL.max(class.acquire.timeout);
        let ttl = class.ttl.get();
        let kept = ttl + class.release.lock_delay;
        let until = latest_expiry(arrives, kept, drift_over(kept, ttl, class.drift));
        let mut life =
            Self::new(class, seed, HoldState::Debt { since: from, until, attempt: 0, undo: true }, from);
        life.due = from;
        life.late_until = arrives;
        life
    }

    fn new(class: Arc<Class>, seed: u64, state: HoldState, started: Moment) -> Self {
        Self {
            widest_terms: LeaseTerms::of(&class, None),
            class,
            state,
            fence: None,
            started,
            earlier_age: Duration::ZERO,
            reported_held: Duration::ZERO,
            lease: None,
            last_touched: started,
            in_flight: None,
            heal_unknown: false,
            late_until: Moment::ZERO,
            due: Moment::FAR,
            retry_delay: FIRST_RETRY_DELAY,
            failures: 0,
            shadow_reported: false,
            seed,
        }
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.state
    }

    /// The class that applies to this hold now.
    #[must_use]
    pub fn class(&self) -> &Arc<Class> {
        &self.class
    }

    /// The fence of the current or last lease; `None` if there never was one.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// When this process began to hold.
    #[must_use]
    pub fn started(&self) -> Moment {
        self.started
    }

    /// When the work must stop.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        let (status, proven_until) = match self.state {
            HoldState::Proven { deadline } => (HoldStatus::Proven, deadline),
            HoldState::Unproven { .. } => (HoldStatus::Unproven, Moment::ZERO),
            HoldState::LocalOnly { .. } => (HoldStatus::LocalOnly, Moment::ZERO),
            HoldState::Lost(loss) => (HoldStatus::Lost(loss), Moment::ZERO),
            HoldState::Releasing { .. } | HoldState::Debt { .. } | HoldState::Done(_) => {
                (HoldStatus::Released, Moment::ZERO)
            }
        };
        Deadline {
            status,
            proven_until,
            limit: match self.class.mode {
                Enforcement::Enforce => self.max_hold_end(),
                Enforcement::Shadow => Moment::FAR,
            },
            stops_unproven: match status {
                HoldStatus::Unproven | HoldStatus::LocalOnly => false,
                HoldStatus::Proven => self.stops_unproven_work(),
                HoldStatus::Lost(_) | HoldStatus::Released => true,
            },
        }
    }

    /// The release must leave a tombstone, because a request of the token may arrive late, or could
    /// when the hold began.
    #[must_use]
    pub fn leaves_tombstone(&self) -> bool {
        self.late_until > Moment::ZERO
    }

    /// The latest moment of the next step.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        // At most one call is in flight; its answer is the next input.
        let due = if self.in_flight.is_some() { Moment::FAR } else { self.due };
        match self.state {
            HoldState::Proven { deadline } => due.min(deadline).min(self.max_hold_end()),
            HoldState::Unproven { .. } | HoldState::LocalOnly { .. } => due.min(self.max_hold_end()),
            HoldState::Debt { until, .. } => due.min(until),
            HoldState::Lost(_) | HoldState::Releasing { .. } | HoldState::Done(_) => Moment::FAR,
        }
    }

    /// No further effects will follow and no call is in flight.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.state, HoldState::Done(_)) && self.in_flight.is_none()
    }

    /// Executes one step. Time is judged first: an answer after the deadline finds the hold as the
    /// deadline left it.
    pub fn step(&mut self, input: Input, now: Moment, out: &mut Vec<Effect>) {
        self.judge(now, out);
        match input {
            Input::Tick => {}
            Input::Renewed { sent_at, remaining_before: was_left } => {
                self.on_renewed(sent_at, was_left, now, out)
            }
            Input::RenewFailed { unknown } => self.on_renew_failed(unknown, now, out),
            Input::NotOwned => self.on_not_owned(now, out),
            Input::Healed { sent_at, fence, ttl } => self.on_healed(sent_at, fence, ttl, now, out),
            Input::HealBusy => self.on_heal_busy(now, out),
            Input::HealFailed { unknown } => self.on_heal_failed(unknown, now, out),
            Input::Release => self.release(now, out),
            Input::ReleaseAnswered(answer) => self.on_release_result(answer, now, out),
            Input::PolicyChanged(class) => self.policy_changed(class, now, out),
            Input::ForceEnd(loss) => self.force_end(loss, now, out),
        }
        self.send_if_due(now, out);
    }

    /// Applies what time alone decides.
    fn judge(&mut self, now: Moment, out: &mut Vec<Effect>) {
        // Twice at most: a shadow policy reports `max_hold` and goes on to the lease's deadline.
        while let Some(loss) = self.loss_at(now) {
            self.on_loss(loss, now, out);
        }
        if let HoldState::Debt { until, since, undo, .. } = self.state
            && now >= until
        {
            self.end_debt(crate::event::DebtResolution::Expired, since, undo, now, out);
        }
    }

    /// The loss that time has caused and this machine has not handled yet.
    fn loss_at(&self, now: Moment) -> Option<Loss> {
        let reached = Deadline {
            // A shadow policy does not enforce `max_hold`, but it reports it.
            limit: self.max_hold_end(),
            ..self.deadline()
        };
        match (self.state, reached.judge(now)) {
            (HoldState::Lost(_), _) => None,
            (_, HoldStatus::Lost(loss)) => Some(loss),
            (HoldState::Proven { .. }, HoldStatus::Unproven) => Some(Loss::Deadline),
            _ => None,
        }
    }

    /// Sends the call that is due.
    fn send_if_due(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if self.in_flight.is_some() || now < self.due {
            return;
        }
        let terms = LeaseTerms::of(&self.class, None);
        let reached = terms.deadline(now, &self.class);
        match &mut self.state {
            HoldState::Proven { .. } | HoldState::Unproven { not_owned: false, .. } => {
                if let HoldState::Proven { deadline } = &mut self.state {
                    // A renewal with a shorter TTL may shorten the lease once it is sent, whether
                    // or not its answer arrives.
                    *deadline = reached.min(*deadline);
                }
                self.widest_terms = self.widest_terms.max(terms);
                self.in_flight = Some(InFlightCall::Renew(terms));
                out.push(Effect::Renew);
            }
            HoldState::Unproven { .. } | HoldState::LocalOnly { .. } => {
                self.widest_terms = self.widest_terms.max(terms);
                self.in_flight = Some(InFlightCall::Heal(terms));
                out.push(Effect::Heal);
            }
            HoldState::Debt { attempt, .. } => {
                *attempt += 1;
                let attempt = *attempt;
                self.in_flight = Some(InFlightCall::Release);
                out.push(Effect::Release { attempt });
            }
            HoldState::Lost(_) | HoldState::Releasing { .. } | HoldState::Done(_) => {}
        }
    }

    /// Handles a loss. A `fence` class abandons the hold: one cancellation, one event, the lease is
    /// left alone. A `continue` class and a shadow policy go on, and the overlap is measured.
    fn on_loss(&mut self, loss: Loss, now: Moment, out: &mut Vec<Effect>) {
        let forced = matches!(loss, Loss::Broken | Loss::Shutdown | Loss::KeeperGone);
        let enforced = self.class.mode == Enforcement::Enforce;
        let fences = match loss {
            Loss::MaxHold => true,
            Loss::HealConflict => self.class.acquire.on_heal_conflict == OnFailure::Fence,
            _ => self.class.renew.on_failure == OnFailure::Fence,
        };
        if forced || (fences && enforced) {
            self.end_overlap(now, out);
            self.state = HoldState::Lost(loss);
            out.push(Effect::Cancel(loss));
            let held = self.take_unreported_held(now);
            out.push(Effect::Emit(EventKind::Abandoned { reason: loss, held }));
            // Otherwise the undo waits for the answer: a heal in flight could be granted after it.
            if self.in_flight.is_none() {
                self.undo_heal(out);
            }
            return;
        }
        if fences && !self.shadow_reported {
            self.shadow_reported = true;
            out.push(Effect::Emit(EventKind::WouldStop { reason: loss }));
        }
        match (loss, self.state) {
            (Loss::Deadline, HoldState::Proven { deadline }) => {
                self.become_unproven(deadline, false, now, out)
            }
            (Loss::NotOwned, HoldState::Proven { .. }) => self.become_unproven(now, true, now, out),
            _ => {}
        }
    }

    fn become_unproven(&mut self, since: Moment, gone: bool, now: Moment, out: &mut Vec<Effect>) {
        self.state = HoldState::Unproven { since, not_owned: gone, confirmed: false };
        self.retry_delay = FIRST_RETRY_DELAY;
        self.due = now;
        out.push(Effect::Emit(EventKind::Unproven));
    }

    // After a shutdown two events report the held time of one hold; each reports its own part.
    fn take_unreported_held(&mut self, now: Moment) -> Duration {
        let whole = self.earlier_age.saturating_add(now.since(self.started));
        whole.saturating_sub(std::mem::replace(&mut self.reported_held, whole))
    }

    // The work ends, so the overlap does.
    fn end_overlap(&self, now: Moment, out: &mut Vec<Effect>) {
        if let HoldState::Unproven { since, .. } | HoldState::LocalOnly { since, .. } = self.state {
            out.push(Effect::Emit(EventKind::OverlapEnded { overlap: now.since(since) }));
        }
    }

    fn force_end(&mut self, loss: Loss, now: Moment, out: &mut Vec<Effect>) {
        if matches!(
            self.state,
            HoldState::Proven { .. } | HoldState::Unproven { .. } | HoldState::LocalOnly { .. }
        ) {
            self.on_loss(loss, now, out);
        }
    }

    /// Schedules the next attempt with exponential backoff.
    fn back_off(&mut self, now: Moment) {
        self.due = now + self.jitter_down(self.retry_delay, 2);
        self.retry_delay = (self.retry_delay * 2).min(MAX_RETRY_DELAY);
    }

    /// Subtracts a random part of at most one `parts`-th: this jitter never delays anything beyond
    /// the plan.
    fn jitter_down(&mut self, whole: Duration, parts: u32) -> Duration {
        let share = u32::try_from(split_mix(&mut self.seed) >> 48).unwrap_or(0); // 16 bits
        whole.saturating_sub((whole / parts.max(1)).mul_f64(f64::from(share) / 65_536.0))
    }
}
