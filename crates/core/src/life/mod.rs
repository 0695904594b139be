//! A hold's life as a pure state machine: `step(input, now)` yields effects. No I/O, no clock, no task.
//!
//! Every rule about a hold stands in one arm of this machine, so simulation, model and property tests run the real
//! code and the async shell around it (`keeper.rs`) only moves bytes and timers. `step` is total: every input in
//! every state has a defined meaning, late and repeated answers included.

mod lease;
mod policy;
mod release;
mod renew;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lease::{Flight, Lease, Terms};
pub use state::{Effect, Input, Outcome, ReleaseAnswer, State};

use crate::clock::Moment;
use crate::event::{Loss, What};
use crate::policy::{Class, Enforcement, OnFailure};
use crate::rng::split_mix;
use crate::store::{Grant, TOMBSTONE};
use crate::word::Fence;

/// The first delay after a failure when there is no deadline to fit attempts before; doubles from there.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay between two attempts to heal, prove or collect.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// One hold's life.
#[derive(Debug)]
pub struct Life {
    class: Arc<Class>,
    state: State,
    fence: Option<Fence>,
    started: Moment,
    /// How long it was held before that, by an earlier process.
    aged: Duration,
    /// How much of the time for which it was held an event has told: no second is told twice.
    told: Duration,
    lease: Option<Lease>,
    /// The last moment at which the store may have touched the lease: debts count from it.
    touched: Moment,
    /// The longest terms on which it may have done so, confirmed or not.
    widest: Terms,
    flight: Option<Flight>,
    /// A heal may have been granted without our knowing.
    heal_unknown: bool,
    /// Until when an ask of its token that nobody waits for may arrive; zero if every one was answered.
    late_until: Moment,
    /// When the next renewal, heal or collection is due.
    due: Moment,
    /// The delay before the attempt after the next.
    delay: Duration,
    /// Consecutive renewal failures.
    failures: u32,
    /// A shadow policy has already counted this hold.
    would_stop: bool,
    /// SplitMix64: jitter without an outside source, so that a life replays from its seed.
    seed: u64,
}

impl Life {
    /// A hold whose lease was granted to a request sent at `sent_at`.
    #[must_use]
    pub fn granted(class: Arc<Class>, seed: u64, sent_at: Moment, grant: Grant, now: Moment) -> Self {
        let terms = Terms::of(&class, grant.ttl);
        let lease = Lease {
            sent_at,
            answered_at: now,
            terms,
        };
        let state = State::Proven {
            deadline: terms.deadline(sent_at, &class),
        };
        let mut life = Self::new(class, seed, state, now);
        life.fence = Some(grant.fence);
        life.lease = Some(lease);
        life.widest = terms;
        life.schedule_renewal(sent_at);
        life
    }

    /// The same, taken up from an earlier process that has held it for this long. A length and not a moment: this
    /// clock may not reach back so far.
    #[must_use]
    pub fn aged(mut self, age: Duration) -> Self {
        self.aged = age;
        self
    }

    /// The same, for a token of which an ask may still arrive, until then: nobody waits for it any more.
    #[must_use]
    pub fn late_until(mut self, until: Moment) -> Self {
        self.late_until = until;
        self
    }

    /// A hold that runs with a local lock only. `asked` says that its acquire may have been granted all the same, or may
    /// have left a waiter: healing goes on with that acquire's token, so that it cannot be taken for someone else's.
    #[must_use]
    pub fn local_only(class: Arc<Class>, seed: u64, asked: bool, now: Moment) -> Self {
        let mut life = Self::new(
            class,
            seed,
            State::LocalOnly {
                since: now,
                confirmed: false,
            },
            now,
        );
        life.heal_unknown = asked;
        life.back_off(now);
        life
    }

    /// An acquire that did not end in a hold but may have been applied, or may have left a waiter behind. Collected
    /// from this moment on, first at once and then like a debt, until the store has surely let go: an ask that nobody waits
    /// for any more can still arrive, and its lease lives from then on.
    #[must_use]
    pub fn undo(class: Arc<Class>, seed: u64, from: Moment) -> Self {
        let arrives = from + TOMBSTONE.max(class.acquire.timeout);
        let until = arrives + class.ttl.get() + class.release.lock_delay + class.drift;
        let mut life = Self::new(
            class,
            seed,
            State::Owing {
                since: from,
                until,
                attempt: 0,
                undo: true,
            },
            from,
        );
        life.due = from;
        life.late_until = arrives;
        life
    }

    fn new(class: Arc<Class>, seed: u64, state: State, started: Moment) -> Self {
        Self {
            widest: Terms::of(&class, None),
            class,
            state,
            fence: None,
            started,
            aged: Duration::ZERO,
            told: Duration::ZERO,
            lease: None,
            touched: started,
            flight: None,
            heal_unknown: false,
            late_until: Moment::ZERO,
            due: Moment::FAR,
            delay: FIRST_DELAY,
            failures: 0,
            would_stop: false,
            seed,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The class in force for it.
    #[must_use]
    pub fn class(&self) -> &Arc<Class> {
        &self.class
    }

    /// Its fence, if it ever had a lease.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// When it began.
    #[must_use]
    pub fn started(&self) -> Moment {
        self.started
    }

    /// The instant after which it must not act: the lease's deadline, or `max_hold` if that comes first.
    /// [`Moment::FAR`] where the class lets work go on without proof.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        let end = self.limit();
        match self.state {
            State::Proven { deadline } if self.fences() => deadline.min(end),
            State::Proven { .. } | State::Unproven { .. } | State::LocalOnly { .. } => end,
            _ => Moment::ZERO,
        }
    }

    /// When `max_hold` ends it, whatever is confirmed until then; [`Moment::FAR`] where the class does not act on it.
    #[must_use]
    pub fn limit(&self) -> Moment {
        if self.class.mode == Enforcement::Shadow {
            Moment::FAR
        } else {
            self.max_end()
        }
    }

    /// Its release leaves a tombstone: an ask of its token may still arrive, or might have when it began.
    #[must_use]
    pub fn leaves_tombstone(&self) -> bool {
        self.late_until > Moment::ZERO
    }

    /// When it must be stepped again at the latest.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        let due = if self.flight.is_some() {
            Moment::FAR
        } else {
            self.due
        };
        match self.state {
            State::Proven { deadline } => due.min(deadline).min(self.max_end()),
            State::Unproven { .. } | State::LocalOnly { .. } => due.min(self.max_end()),
            State::Owing { until, .. } => due.min(until),
            State::Lost(_) | State::Releasing { .. } | State::Done(_) => Moment::FAR,
        }
    }

    /// Nothing more will happen and no call is on its way.
    #[must_use]
    pub fn finished(&self) -> bool {
        matches!(self.state, State::Done(_)) && self.flight.is_none()
    }

    /// One step. Time is judged first: an answer that comes after the deadline finds the hold as the deadline left it.
    pub fn step(&mut self, input: Input, now: Moment, out: &mut Vec<Effect>) {
        self.judge(now, out);
        match input {
            Input::Tick => {}
            Input::Renewed { sent_at, was_left } => self.renewed(sent_at, was_left, now, out),
            Input::RenewFailed { unknown } => self.renew_failed(unknown, now, out),
            Input::NotOwned => self.not_owned(now, out),
            Input::Healed { sent_at, fence, ttl } => self.healed(sent_at, fence, ttl, now, out),
            Input::HealBusy => self.heal_busy(now, out),
            Input::HealFailed { unknown } => self.heal_failed(unknown, now, out),
            Input::Release => self.release(now, out),
            Input::ReleaseAnswer(answer) => self.release_answer(answer, now, out),
            Input::PolicyChanged(class) => self.policy_changed(class, now, out),
            Input::End(loss) => self.end(loss, now, out),
        }
        self.act_if_due(now, out);
    }

    /// What the clock alone decides.
    fn judge(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let alive = matches!(
            self.state,
            State::Proven { .. } | State::Unproven { .. } | State::LocalOnly { .. }
        );
        if alive && now >= self.max_end() {
            self.lose(Loss::MaxHold, now, out);
        }
        match self.state {
            State::Proven { deadline } if now >= deadline => self.lose(Loss::Deadline, now, out),
            State::Owing {
                until, since, undo, ..
            } if now >= until => {
                self.cleared(crate::event::Cleared::Expired, since, undo, now, out);
            }
            _ => {}
        }
    }

    /// Sends what is due.
    fn act_if_due(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if self.flight.is_some() || now < self.due {
            return;
        }
        let terms = Terms::of(&self.class, None);
        let reached = terms.deadline(now, &self.class);
        match &mut self.state {
            State::Proven { .. } | State::Unproven { gone: false, .. } => {
                if let State::Proven { deadline } = &mut self.state {
                    // A renewal for a TTL that was shortened may cut the lease once it is sent, heard of or not.
                    *deadline = reached.min(*deadline);
                }
                self.widest = self.widest.widest(terms);
                self.flight = Some(Flight::Renew(terms));
                out.push(Effect::Renew);
            }
            State::Unproven { .. } | State::LocalOnly { .. } => {
                self.widest = self.widest.widest(terms);
                self.flight = Some(Flight::Heal(terms));
                out.push(Effect::Heal);
            }
            State::Owing { attempt, .. } => {
                *attempt += 1;
                let attempt = *attempt;
                self.flight = Some(Flight::Release);
                out.push(Effect::Release { attempt });
            }
            State::Lost(_) | State::Releasing { .. } | State::Done(_) => {}
        }
    }

    /// The hold cannot go on as it is. In a `fence` class it is abandoned: cancelled once, counted once, the lease left
    /// alone. A `continue` class, and a shadow policy, goes on; what that costs is measured.
    fn lose(&mut self, loss: Loss, now: Moment, out: &mut Vec<Effect>) {
        let forced = matches!(loss, Loss::Broken | Loss::Shutdown | Loss::KeeperGone);
        let enforced = self.class.mode == Enforcement::Enforce;
        let fences = match loss {
            Loss::MaxHold => true,
            Loss::HealConflict => self.class.acquire.on_heal_conflict == OnFailure::Fence,
            _ => self.class.renew.on_failure == OnFailure::Fence,
        };
        if forced || (fences && enforced) {
            self.end_overlap(now, out);
            self.state = State::Lost(loss);
            out.push(Effect::Cancel(loss));
            let held = self.held(now);
            out.push(Effect::Emit(What::Abandoned { reason: loss, held }));
            // Else when what is on its way is answered.
            if self.flight.is_none() {
                self.give_back(out);
            }
            return;
        }
        if fences && !self.would_stop {
            self.would_stop = true;
            out.push(Effect::Emit(What::WouldStop { reason: loss }));
        }
        match (loss, self.state) {
            (Loss::Deadline, State::Proven { deadline }) => self.unproven(deadline, false, now, out),
            (Loss::NotOwned, State::Proven { .. }) => self.unproven(now, true, now, out),
            _ => {}
        }
    }

    fn unproven(&mut self, since: Moment, gone: bool, now: Moment, out: &mut Vec<Effect>) {
        self.state = State::Unproven {
            since,
            gone,
            confirmed: false,
        };
        self.delay = FIRST_DELAY;
        self.due = now;
        out.push(Effect::Emit(What::Unproven));
    }

    /// How long it was held, as its next event tells it. One that a shutdown ended and that is then given back has told
    /// of most of it already.
    fn held(&mut self, now: Moment) -> Duration {
        let whole = self.aged.saturating_add(now.since(self.started));
        whole.saturating_sub(std::mem::replace(&mut self.told, whole))
    }

    /// The overlap clock stops because the work does.
    fn end_overlap(&self, now: Moment, out: &mut Vec<Effect>) {
        if let State::Unproven { since, .. } | State::LocalOnly { since, .. } = self.state {
            out.push(Effect::Emit(What::OverlapEnded {
                overlap: now.since(since),
            }));
        }
    }

    fn end(&mut self, loss: Loss, now: Moment, out: &mut Vec<Effect>) {
        if matches!(
            self.state,
            State::Proven { .. } | State::Unproven { .. } | State::LocalOnly { .. }
        ) {
            self.lose(loss, now, out);
        }
    }

    /// The next attempt, later each time.
    fn back_off(&mut self, now: Moment) {
        self.due = now + self.shorten(self.delay, 2);
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }

    /// `whole` less a random part of at most one `parts`-th: jitter that never makes anything later than planned.
    fn shorten(&mut self, whole: Duration, parts: u32) -> Duration {
        let share = u32::try_from(split_mix(&mut self.seed) >> 48).unwrap_or(0); // 16 bits
        whole.saturating_sub((whole / parts.max(1)).mul_f64(f64::from(share) / 65_536.0))
    }
}
