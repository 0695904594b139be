//! What a process does with its locks: acquire, look, write, give back, and write everything down.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{Clock, ClockExt, until};
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure};
use leasehold_core::{Acquired, Error, Exclusivity, Fence, Hold, Locks, Name, Standing};
use tokio::sync::oneshot;

use super::clock::ProcessClock;
use super::dice::Dice;
use super::drift::{MOST_DRIFT, MS};
use super::mistake::Mistake;
use super::target::Write;
use super::world::World;
use crate::history::{Answer, Entry, Wrote};

/// The longest rest between two acquires of a task.
pub(super) const REST: u64 = 500 * MS;

/// A task of a process that takes locks under one class.
pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) slot: usize,
    pub(super) life: u32,
    pub(super) who: Arc<str>,
    pub(super) clock: ProcessClock,
    pub(super) locks: Locks,
    pub(super) class: String,
    pub(super) dice: Dice,
    /// Shared by the tasks of a process.
    pub(super) attempts: Arc<AtomicU64>,
    pub(super) writes: Arc<AtomicU64>,
    /// The class as it was last written down.
    pub(super) said: Mutex<Option<Arc<Class>>>,
}

/// What became of an acquire: its number, and the hold.
type Begun = (u64, Option<Hold>);

/// What a worker takes for true of its hold.
#[derive(Clone, Copy)]
struct Belief {
    until: u64,
    proven_until: Option<u64>,
    fence: Option<Fence>,
}

impl Worker {
    /// Takes locks until told to stop, or until the client ends.
    pub(super) async fn run(self) {
        let me = Arc::new(self);
        loop {
            me.sleep(me.dice.between(0, REST)).await;
            let Some(name) = me.next_name() else { return };
            let Some((attempt, hold)) = me.begin(&name).await else {
                return;
            };
            if let Some(hold) = hold {
                let careless = me.odds(|odds| odds.careless);
                me.hold(attempt, hold, careless).await;
            }
        }
    }

    /// The next name to lock; none once it is told to stop.
    pub(super) fn next_name(&self) -> Option<Name> {
        let state = self.world.lock();
        let name = state.names.get(self.dice.index(state.names.len())).cloned();
        name.filter(|_| !state.stopping)
    }

    pub(super) fn stopping(&self) -> bool {
        self.world.lock().stopping
    }

    /// The true time.
    pub(super) fn now(&self) -> u64 {
        self.world.lock().now
    }

    /// One acquire that must be granted, held for so long.
    pub(super) async fn probe(self, name: Name, lasts: u64) {
        let me = Arc::new(self);
        let Some((attempt, Some(hold))) = me.begin(&name).await else {
            return;
        };
        if let Some(fence) = me.look(attempt, &hold, None) {
            me.send(attempt, &name, fence, None);
        }
        me.sleep(lasts).await;
        me.note(Entry::Releasing { attempt });
        hold.release().await;
    }

    /// An operator changes a field of the class for a while.
    pub(super) async fn change(self, field: String, value: String, lasts: Duration, kind: &'static str) {
        let reason = "simulated";
        if self
            .locks
            .set_policy(&self.class, &field, &value, reason, lasts)
            .is_err()
        {
            return;
        }
        self.world.lock().count(kind);
        self.note_class();
        self.clock.sleep(lasts).await;
        self.note_class();
    }

    /// Writes down what the class is, if that is not what was last written.
    pub(super) fn note_class(&self) {
        let Ok(class) = self.locks.policies().class(&self.class, self.clock.now()) else {
            return;
        };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref().is_some_and(|said| **said == *class) {
            return;
        }
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let shadow = class.mode == Enforcement::Shadow;
        // In true time: the slowest clock makes the most of it.
        let usable = nanos(class.usable());
        self.note(Entry::Class {
            class: self.class.clone(),
            ttl: nanos(class.ttl.get() + class.release.lock_delay),
            usable: usable + usable / 1_000_000 * (MOST_DRIFT + 100) + MS / 100,
            fail_open: shadow || class.acquire.on_error == OnError::FailOpen,
            continues: shadow || class.renew.on_failure == OnFailure::Continue,
        });
        *said = Some(class);
    }

    /// One acquire. Nothing if the client has ended.
    async fn begin(&self, name: &Name) -> Option<Begun> {
        self.note_class();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let sent = self.now();
        let me = (self.slot, self.life, self.class.as_str());
        self.world.lock().orphans.begins(me);
        self.note(Entry::Asked {
            attempt,
            name: name.to_string(),
            class: self.class.clone(),
        });
        let answered = |answer, fence| {
            // An error ends as the class in force says, not as the one that it began with.
            self.note_class();
            let held = matches!(answer, Answer::Held | Answer::LocalOnly);
            let now = self.now();
            self.world.lock().orphans.ends(me, held, now);
            self.note(Entry::Answered {
                attempt,
                sent,
                answer,
                fence,
            });
        };
        let acquire = self.locks.class(&self.class).acquire(name.as_str());
        let outcome = if self.odds(|odds| odds.cancel) {
            let patience = Duration::from_nanos(self.dice.between(0, 2_000 * MS));
            match until(&self.clock, self.clock.now() + patience, acquire).await {
                Some(outcome) => outcome,
                None => {
                    answered(Answer::Cancelled, None);
                    return Some((attempt, None));
                }
            }
        } else {
            acquire.await
        };
        match outcome {
            Ok(Acquired::Held(hold)) => {
                match hold.exclusivity() {
                    Exclusivity::Distributed => answered(Answer::Held, hold.unfenced().ok().flatten()),
                    Exclusivity::LocalOnly => answered(Answer::LocalOnly, None),
                }
                Some((attempt, Some(hold)))
            }
            Ok(Acquired::Busy(_)) => {
                answered(Answer::Busy, None);
                Some((attempt, None))
            }
            Err(Error::Closed) => {
                answered(Answer::Closed, None);
                None
            }
            Err(Error::Unavailable { .. }) => {
                answered(Answer::Unavailable, None);
                Some((attempt, None))
            }
            Err(_) => None,
        }
    }

    async fn hold(self: &Arc<Self>, attempt: u64, hold: Hold, careless: bool) {
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
        self.note(Entry::Reported { attempt, value, lost });
        self.note(Entry::Releasing { attempt });
        if !careless {
            hold.release().await;
        } else if self.dice.chance(500) {
            drop(hold);
        } else {
            // Begun and dropped: it goes on without us.
            let mut release = pin!(hold.release());
            tokio::select! {
                biased;
                _ = &mut release => {}
                () = std::future::ready(()) => {}
            }
        }
    }

    /// Some steps with a write each; the result is the attempt's number.
    async fn work(self: &Arc<Self>, attempt: u64, hold: &Hold, reckless: bool) -> u64 {
        let usable = match self.locks.policies().class(&self.class, self.clock.now()) {
            Ok(class) => u64::try_from(class.usable().as_nanos()).unwrap_or(u64::MAX),
            Err(_) => MS,
        };
        let steps = self.dice.between(1, 6);
        let mut believed = None;
        for step in 1..=steps {
            if self.stopping() {
                break;
            }
            let fence = self.look(attempt, hold, believed);
            if reckless {
                believed = believed.or(Some(self.belief(hold, fence)));
            }
            if let Some(fence) = fence.or(believed.and_then(|belief| belief.fence)) {
                self.send(attempt, hold.name(), fence, (step == steps).then_some(attempt));
            }
            self.sleep(self.dice.between(usable / 20, usable / 2)).await;
        }
        self.note(Entry::Returned {
            attempt,
            value: attempt,
        });
        attempt
    }

    /// What a look at the hold says, in true time.
    fn belief(&self, hold: &Hold, fence: Option<Fence>) -> Belief {
        let when = |span| self.clock.when(self.clock.now() + span);
        let proven = hold.standing() == Standing::Proven;
        Belief {
            until: when(hold.remaining()),
            proven_until: proven.then(|| when(hold.proven_for())),
            fence,
        }
    }

    /// Looks whether the name is still ours, and writes down what is believed: now, or since the first look.
    fn look(&self, attempt: u64, hold: &Hold, believed: Option<Belief>) -> Option<Fence> {
        self.note_class();
        let fence = hold.unfenced();
        // A careful worker that finds its hold lost claims nothing: `Hold::run` ends it at its next step.
        if fence.is_ok() || believed.is_some() {
            let belief =
                believed.unwrap_or_else(|| self.belief(hold, fence.as_ref().ok().copied().flatten()));
            self.note(Entry::Claimed {
                attempt,
                until: belief.until,
                proven_until: belief.proven_until,
                fence: belief.fence,
            });
        }
        fence.ok().flatten()
    }

    /// Sends a write. From here on it is on its way: the work may be stopped, the write arrives.
    pub(super) fn send(self: &Arc<Self>, attempt: u64, name: &Name, fence: Fence, task: Option<u64>) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let write = Write {
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
            state.write(write, to);
            state.now
        };
        let (me, name) = (Arc::clone(self), name.clone());
        tokio::spawn(async move {
            let (answer, newest) = answer.await.unwrap_or((Wrote::Unknown, None));
            me.note(Entry::Written {
                attempt,
                write: number,
                sent,
                fence: Some(fence),
                answer,
            });
            let panics = me.world.lock().plan.mistake == Mistake::PanicsWhenRefused;
            assert!(!panics || answer != Wrote::Refused, "a mistake, on purpose");
            if let Some(newest) = newest {
                me.locks.fence_refused(&me.class, &name, fence, newest);
            }
        });
    }

    /// Whether this happens to this one, as long as faults happen.
    pub(super) fn odds(&self, of: impl Fn(&super::plan::Odds) -> u64) -> bool {
        let state = self.world.lock();
        let odds = if state.healed { 0 } else { of(&state.plan.odds) };
        drop(state);
        self.dice.chance(odds)
    }

    pub(super) async fn sleep(&self, by: u64) {
        self.clock.sleep(Duration::from_nanos(by)).await;
    }

    pub(super) fn note(&self, what: Entry) {
        let mut state = self.world.lock();
        let now = state.now;
        state.tape.note(now, &self.who, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::judge;
    use crate::sim::class::PROBE;
    use crate::sim::director::Director;
    use crate::sim::drift::SEC;
    use crate::sim::engine::Service;
    use crate::sim::plan::Plan;

    /// An error ends as the class in force says: whoever reads the history must find that class in it, whoever has changed it.
    #[test]
    fn a_class_that_changed_while_it_was_asked_for_is_written_down_before_the_answer() {
        let mut plan = Plan::new(1, Mistake::Nothing);
        plan.strikes.clear();
        let mut director = Director::new(&plan).unwrap();
        let name = {
            let mut state = director.world.lock();
            (state.stopping, state.healed) = (true, true);
            state.engine.service = Service::Silent;
            state.names[0].clone()
        };
        let process = director.processes[0].as_mut().unwrap();
        let locks = process.locks.clone().unwrap();
        let worker = process.worker(PROBE, 7).unwrap();
        process.spawn(async move {
            let _ = worker.begin(&name).await;
        });
        let minute = Duration::from_secs(60);
        process.spawn(async move {
            let set = locks.set_policy(PROBE, "acquire.on_error", "fail-open", "a test", minute);
            set.unwrap();
        });
        director.run_until(director.now() + 5 * SEC).unwrap();
        let records = director.world.lock().tape.records.clone();
        let local =
            |what: &Entry| matches!(what, Entry::Answered { answer, .. } if *answer == Answer::LocalOnly);
        assert!(records.iter().any(|record| local(&record.what)));
        let judged = judge(&crate::history::History {
            records,
            damage: Vec::new(),
        });
        assert!(!judged.breaks("I8"), "{:#?}", judged.findings);
    }
}
