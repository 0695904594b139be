//! A task that uses the library: acquires, checks its hold, writes, releases, and records all of it.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{Clock, ClockExt, run_until};
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure};
use leasehold_core::{Acquired, Error, Exclusivity, Fence, Hold, HoldStatus, Locks, Name, ReleaseOutcome};
use tokio::sync::oneshot;

use super::clock::ProcessClock;
use super::drift::{MAX_DRIFT_PPM, MS};
use super::mistake::Mistake;
use super::random::SimRandom;
use super::target::SimWrite;
use super::world::SimWorld;
use leasehold_drill::history::{HistoryEntry, RecordedOutcome, RecordedRelease, WriteOutcome};

/// The longest pause between two acquires of a task.
pub(super) const MAX_REST_NANOS: u64 = 500 * MS;

/// A task of a process that takes locks under one class.
pub(super) struct SimWorker {
    pub(super) world: Arc<SimWorld>,
    pub(super) slot: usize,
    pub(super) life: u32,
    pub(super) who: Arc<str>,
    pub(super) clock: ProcessClock,
    pub(super) locks: Locks,
    pub(super) class: String,
    pub(super) random: SimRandom,
    // Shared by the tasks of a process.
    pub(super) attempts: Arc<AtomicU64>,
    pub(super) writes: Arc<AtomicU64>,
    // The class as last recorded.
    pub(super) recorded_class: Mutex<Option<Arc<Class>>>,
}

/// The number of an acquire, and its hold if it was granted.
type AcquireResult = (u64, Option<Hold>);

/// What a worker believes about its hold.
#[derive(Clone, Copy)]
struct HoldBelief {
    until: u64,
    proven_until: Option<u64>,
    fence: Option<Fence>,
}

impl SimWorker {
    /// Takes locks until the simulation stops the workers or the client is closed.
    pub(super) async fn run(self) {
        let me = Arc::new(self);
        loop {
            me.sleep(me.random.between(0, MAX_REST_NANOS)).await;
            let Some(name) = me.next_name() else { return };
            let Some((attempt, hold)) = me.acquire(&name).await else {
                return;
            };
            if let Some(hold) = hold {
                let careless = me.draw_chance(|odds| odds.careless);
                me.use_hold(attempt, hold, careless).await;
            }
        }
    }

    /// The next name to lock; `None` once the workers are to stop.
    pub(super) fn next_name(&self) -> Option<Name> {
        let state = self.world.lock();
        let name = state.names.get(self.random.index(state.names.len())).cloned();
        name.filter(|_| !state.stopping)
    }

    pub(super) fn stopping(&self) -> bool {
        self.world.lock().stopping
    }

    /// The true time.
    pub(super) fn now(&self) -> u64 {
        self.world.lock().now
    }

    /// One acquire that must be granted, held for `lasts`.
    pub(super) async fn probe(self, name: Name, lasts: u64) {
        let me = Arc::new(self);
        let Some((attempt, Some(hold))) = me.acquire(&name).await else {
            return;
        };
        if let Some(fence) = me.check_hold(attempt, &hold, None) {
            me.send_write(attempt, &name, fence, None);
        }
        me.sleep(lasts).await;
        me.release(attempt, hold).await;
    }

    /// Overrides a field of the class, as an operator does.
    pub(super) async fn override_policy(
        self,
        field: String,
        value: String,
        lasts: Duration,
        kind: &'static str,
    ) {
        let reason = "simulated";
        if self.locks.set_policy(&self.class, &field, &value, reason, lasts).is_err() {
            return;
        }
        self.world.lock().count_fault(kind);
        self.record_class();
        self.clock.sleep(lasts).await;
        self.record_class();
    }

    /// Records the class if it differs from the last recorded one.
    pub(super) fn record_class(&self) {
        let Ok(class) = self.locks.policies().class(&self.class, self.clock.now()) else {
            return;
        };
        let mut message = self.recorded_class.lock().unwrap_or_else(PoisonError::into_inner);
        if message.as_ref().is_some_and(|message| **message == *class) {
            return;
        }
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let shadow = class.mode == Enforcement::Shadow;
        // In true time: by the slowest clock a lease lasts longest.
        let usable = nanos(class.usable());
        self.record(HistoryEntry::Class {
            class: self.class.clone(),
            ttl: nanos(class.ttl.get() + class.release.lock_delay),
            usable: usable + usable / 1_000_000 * (MAX_DRIFT_PPM + 100) + MS / 100,
            fail_open: shadow || class.acquire.on_error == OnError::FailOpen,
            continues: shadow || class.renew.on_failure == OnFailure::Continue,
        });
        *message = Some(class);
    }

    /// One acquire, with its records. `None` if the client is closed.
    async fn acquire(&self, name: &Name) -> Option<AcquireResult> {
        self.record_class();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let sent = self.now();
        let me = (self.slot, self.life, self.class.as_str());
        // Before the first request, so that the tracker assigns the request to this acquire.
        self.world.lock().orphans.acquire_begins(me);
        self.record(HistoryEntry::Asked { attempt, name: name.to_string(), class: self.class.clone() });
        let answered = |answer, fence| {
            // An error is handled by the class in force at that time, not by the one at the start.
            self.record_class();
            let held = matches!(answer, RecordedOutcome::Held | RecordedOutcome::LocalOnly);
            let now = self.now();
            self.world.lock().orphans.acquire_ends(me, held, now);
            self.record(HistoryEntry::Answered { attempt, sent, answer, fence });
        };
        let acquire = self.locks.class(&self.class).acquire(name.as_str());
        let outcome = if self.draw_chance(|odds| odds.cancel) {
            let timeout = Duration::from_nanos(self.random.between(0, 2_000 * MS));
            // Dropping the future is how a caller cancels.
            match run_until(&self.clock, self.clock.now() + timeout, acquire).await {
                Some(outcome) => outcome,
                None => {
                    answered(RecordedOutcome::Cancelled, None);
                    return Some((attempt, None));
                }
            }
        } else {
            acquire.await
        };
        match outcome {
            Ok(Acquired::Held(hold)) => {
                match hold.exclusivity() {
                    Exclusivity::Distributed => {
                        answered(RecordedOutcome::Held, hold.fence_if_any().ok().flatten())
                    }
                    Exclusivity::LocalOnly => answered(RecordedOutcome::LocalOnly, None),
                }
                Some((attempt, Some(hold)))
            }
            Ok(Acquired::Busy(_)) => {
                answered(RecordedOutcome::Busy, None);
                Some((attempt, None))
            }
            Err(Error::Closed) => {
                answered(RecordedOutcome::Closed, None);
                None
            }
            Err(Error::Unavailable { .. }) => {
                answered(RecordedOutcome::Unavailable, None);
                Some((attempt, None))
            }
            Err(_) => None,
        }
    }

    async fn use_hold(self: &Arc<Self>, attempt: u64, hold: Hold, careless: bool) {
        // `CachedValidity` works without `Hold::run`, which would stop the work at the deadline.
        let reckless = self.world.lock().plan.mistake == Mistake::CachedValidity;
        let result = if reckless {
            Ok(self.work(attempt, &hold, true).await)
        } else {
            hold.run(self.work(attempt, &hold, false)).await
        };
        let (value, lost) = match result {
            Ok(value) => (Some(value), false),
            Err((_, value)) => (value, true),
        };
        self.record(HistoryEntry::Reported { attempt, value, lost });
        if !careless {
            return self.release(attempt, hold).await;
        }
        self.record(HistoryEntry::Releasing { attempt });
        if self.random.chance(500) {
            drop(hold);
        } else {
            // Started and dropped: the library must finish the release by itself.
            let mut release = pin!(hold.release());
            tokio::select! {
                biased;
                _ = &mut release => {}
                () = std::future::ready(()) => {}
            }
        }
    }

    /// Releases the hold and records what it was told.
    async fn release(&self, attempt: u64, hold: Hold) {
        self.record(HistoryEntry::Releasing { attempt });
        let (outcome, until) = match hold.release().await {
            ReleaseOutcome::Released => (RecordedRelease::Released, None),
            ReleaseOutcome::AlreadyLost => (RecordedRelease::AlreadyLost, None),
            ReleaseOutcome::Skipped => (RecordedRelease::Skipped, None),
            ReleaseOutcome::Debt { until } => (RecordedRelease::Debt, Some(until)),
            ReleaseOutcome::Kept { until } => (RecordedRelease::Kept, Some(until)),
            _ => return,
        };
        let until = until.map(|until| self.clock.true_time_of(until));
        self.record(HistoryEntry::ReleaseAnswered { attempt, outcome, until });
    }

    /// Several steps with a write each; returns the number of the acquire.
    async fn work(self: &Arc<Self>, attempt: u64, hold: &Hold, reckless: bool) -> u64 {
        let usable = match self.locks.policies().class(&self.class, self.clock.now()) {
            Ok(class) => u64::try_from(class.usable().as_nanos()).unwrap_or(u64::MAX),
            Err(_) => MS,
        };
        let steps = self.random.between(1, 6);
        let mut believed = None;
        for step in 1..=steps {
            if self.stopping() {
                break;
            }
            let fence = self.check_hold(attempt, hold, believed);
            if reckless {
                believed = believed.or(Some(self.current_belief(hold, fence)));
            }
            if let Some(fence) = fence.or(believed.and_then(|belief| belief.fence)) {
                self.send_write(attempt, hold.name(), fence, (step == steps).then_some(attempt));
            }
            self.sleep(self.random.between(usable / 20, usable / 2)).await;
        }
        self.record(HistoryEntry::Returned { attempt, value: attempt });
        attempt
    }

    /// The hold's current state, in true time.
    fn current_belief(&self, hold: &Hold, fence: Option<Fence>) -> HoldBelief {
        let when = |span| self.clock.true_time_of(self.clock.now() + span);
        let proven = hold.status() == HoldStatus::Proven;
        HoldBelief {
            until: when(hold.remaining()),
            proven_until: proven.then(|| when(hold.proven_for())),
            fence,
        }
    }

    /// Checks the hold and records what the worker believes: the current state, or its cached one.
    fn check_hold(&self, attempt: u64, hold: &Hold, believed: Option<HoldBelief>) -> Option<Fence> {
        self.record_class();
        let fence = hold.fence_if_any();
        // A careful worker with a lost hold records no claim: `Hold::run` stops it at its next step.
        if fence.is_ok() || believed.is_some() {
            let belief =
                believed.unwrap_or_else(|| self.current_belief(hold, fence.as_ref().ok().copied().flatten()));
            self.record(HistoryEntry::Claimed {
                attempt,
                until: belief.until,
                proven_until: belief.proven_until,
                fence: belief.fence,
            });
        }
        fence.ok().flatten()
    }

    /// Sends a write. It arrives even if the work is stopped meanwhile.
    pub(super) fn send_write(self: &Arc<Self>, attempt: u64, name: &Name, fence: Fence, task: Option<u64>) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let write = SimWrite {
            slot: self.slot,
            life: self.life,
            name: name.clone(),
            writer: self.who.as_ref().to_owned(),
            number,
            task,
            fence,
        };
        let (to, answer) = oneshot::channel();
        let sent = {
            let mut state = self.world.lock();
            state.send_write(write, to);
            state.now
        };
        let (me, name) = (Arc::clone(self), name.clone());
        // Detached, because the work does not wait for its writes.
        tokio::spawn(async move {
            let (answer, newest) = answer.await.unwrap_or((WriteOutcome::Unknown, None));
            me.record(HistoryEntry::Written { attempt, write: number, sent, fence: Some(fence), answer });
            let panics = me.world.lock().plan.mistake == Mistake::PanicsWhenRefused;
            // The task is detached, so only the panic count can reveal this.
            assert!(!panics || answer != WriteOutcome::Refused, "a mistake, on purpose");
            if let Some(newest) = newest {
                me.locks.report_fence_refused(&me.class, &name, fence, newest);
            }
        });
    }

    /// Draws whether a fault happens to this worker; never after the faults have ended.
    pub(super) fn draw_chance(&self, of: impl Fn(&super::plan::FaultOdds) -> u64) -> bool {
        let state = self.world.lock();
        let odds = if state.faults_ended { 0 } else { of(&state.plan.odds) };
        drop(state);
        self.random.chance(odds)
    }

    pub(super) async fn sleep(&self, by: u64) {
        self.clock.sleep(Duration::from_nanos(by)).await;
    }

    pub(super) fn record(&self, what: HistoryEntry) {
        let mut state = self.world.lock();
        let now = state.now;
        state.history.record(now, &self.who, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::PROBE_CLASS;
    use crate::drift::SEC;
    use crate::engine::StoreHealth;
    use crate::plan::SimPlan;
    use crate::simulation::Simulation;
    use leasehold_drill::oracle::judge;

    /// An error is handled by the class in force, so the history must contain that class before the
    /// answer.
    #[test]
    fn a_class_changed_during_an_acquire_is_recorded_before_the_answer() {
        let mut plan = SimPlan::new(1, Mistake::Nothing);
        plan.faults.clear();
        let mut director = Simulation::new(&plan).unwrap();
        let name = {
            let mut state = director.world.lock();
            (state.stopping, state.faults_ended) = (true, true);
            state.engine.health = StoreHealth::Silent;
            state.names[0].clone()
        };
        let process = director.processes[0].as_mut().unwrap();
        let locks = process.locks.clone().unwrap();
        let worker = process.worker(PROBE_CLASS, 7).unwrap();
        process.spawn(async move {
            let _ = worker.acquire(&name).await;
        });
        let minute = Duration::from_secs(60);
        process.spawn(async move {
            let set = locks.set_policy(PROBE_CLASS, "acquire.on_error", "fail-open", "a test", minute);
            set.unwrap();
        });
        director.run_until(director.now() + 5 * SEC).unwrap();
        let records = director.world.lock().history.records.clone();
        let local = |what: &HistoryEntry| matches!(what, HistoryEntry::Answered { answer, .. } if *answer == RecordedOutcome::LocalOnly);
        assert!(records.iter().any(|record| local(&record.what)));
        let judged = judge(&leasehold_drill::history::History { records, damage: Vec::new() });
        assert!(!judged.breaks("I8"), "{:#?}", judged.findings);
    }
}
