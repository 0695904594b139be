//! One simulated process: the real client on a runtime of its own, which runs only when the director lets it.
//!
//! The runtime has neither timers nor sockets. A *turn* polls what can be polled until nothing is left; so a process that
//! stands still is one that gets no turn, and one that is killed is dropped where it stands.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::Wakers;
use leasehold_core::{Holder, Left, Locks};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::class;
use super::clock::ProcessClock;
use super::dice::Dice;
use super::store::SimStore;
use super::tape::Tap;
use super::worker::Worker;
use super::world::World;
use crate::history::Entry;
use crate::invariant::COUNTERS;

/// Ends a turn when the runtime has nothing left to poll.
#[derive(Debug, Default)]
struct Turn {
    idle: AtomicBool,
    root: Mutex<Option<Waker>>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    slot: usize,
    pub(super) who: Arc<str>,
    pub(super) locks: Option<Locks>,
    pub(super) wakers: Arc<Wakers>,
    world: Arc<World>,
    silent: Arc<AtomicBool>,
    counters: Arc<Counters>,
    attempts: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
    /// What an orderly end left undone, once it has ended.
    leaving: Option<Arc<Mutex<Option<Left>>>>,
    turn: Arc<Turn>,
    runtime: Runtime,
}

impl Process {
    /// Starts the process of a host, without any work yet.
    pub(super) fn start(world: &Arc<World>, slot: usize) -> Result<Self, String> {
        let (plan, life, who) = {
            let mut state = world.lock();
            let plan = Arc::clone(&state.plan);
            let host = state.hosts.get_mut(slot).ok_or("no such host")?;
            host.alive = true;
            host.life += 1;
            host.paused_until = 0;
            (plan, host.life, host.who(slot))
        };
        let turn = Arc::new(Turn::default());
        let parked = Arc::clone(&turn);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || {
                let root = parked.root.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(root) = root {
                    parked.idle.store(true, Ordering::Relaxed);
                    root.wake();
                }
            })
            .build()
            .map_err(|error| error.to_string())?;
        let clock = ProcessClock {
            world: Arc::clone(world),
            slot,
        };
        let wakers = Arc::new(Wakers::default());
        let store = SimStore {
            world: Arc::clone(world),
            slot,
            life,
            kind: plan.kind,
            queue: plan.queue,
            wakers: Arc::clone(&wakers),
        };
        let silent = Arc::new(AtomicBool::new(false));
        let tap = Tap {
            world: Arc::clone(world),
            clock: clock.clone(),
            who: who.clone(),
            silent: Arc::clone(&silent),
        };
        let counters = Arc::new(Counters::default());
        let seed = Dice::keyed(plan.seed, [0xc11e, slot as u64, u64::from(life)]).below(u64::MAX);
        let book =
            PolicyBook::from_text(&class::text(&plan.classes), "sim").map_err(|bad| bad.to_string())?;
        let holder = Holder::new(&who).map_err(|bad| bad.to_string())?;
        let builder = Locks::builder(Arc::new(store))
            .policies(book)
            .clock(Arc::new(clock))
            .random(SeededRandom::shared(seed))
            .holder(holder)
            .observer(Arc::new(tap))
            .observer(Arc::clone(&counters) as Arc<_>)
            .without_log();
        let locks = runtime
            .block_on(async { builder.build() })
            .map_err(|bad| bad.to_string())?;
        Ok(Self {
            slot,
            who: who.into(),
            locks: Some(locks),
            wakers,
            world: Arc::clone(world),
            silent,
            counters,
            attempts: Arc::default(),
            writes: Arc::default(),
            tasks: Vec::new(),
            leaving: None,
            turn,
            runtime,
        })
    }

    /// A worker of this process, for one class.
    pub(super) fn worker(&self, class: &str, number: u64) -> Option<Worker> {
        let state = self.world.lock();
        let life = state.hosts.get(self.slot)?.life;
        let seed = state.plan.seed;
        drop(state);
        Some(Worker {
            world: Arc::clone(&self.world),
            slot: self.slot,
            life,
            who: Arc::clone(&self.who),
            clock: ProcessClock {
                world: Arc::clone(&self.world),
                slot: self.slot,
            },
            locks: self.locks.clone()?,
            class: class.to_owned(),
            dice: Dice::keyed(seed, [0x303c, number, (self.slot as u64) << 32 | u64::from(life)]),
            attempts: Arc::clone(&self.attempts),
            writes: Arc::clone(&self.writes),
            said: Mutex::new(None),
        })
    }

    /// Lets it do something until it can do no more for now.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(self.runtime.spawn(work));
        self.take_turn();
    }

    /// Polls what can be polled.
    pub(super) fn take_turn(&self) {
        self.at_once(std::future::pending::<()>());
    }

    /// What a future answers without any time passing.
    pub(super) fn at_once<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let turn = &self.turn;
        self.runtime.block_on(async {
            let mut work = pin!(work);
            poll_fn(|cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                if turn.idle.swap(false, Ordering::Relaxed) {
                    return Poll::Ready(None);
                }
                *turn.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
                Poll::Pending
            })
            .await
        })
    }

    /// Its tasks have ended.
    pub(super) fn rests(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    /// What its keeper still has to do.
    pub(super) fn left(&self) -> Left {
        match &self.locks {
            Some(locks) => self.at_once(locks.left()).unwrap_or_default(),
            None => Left::default(),
        }
    }

    /// Begins an orderly end.
    pub(super) fn leave(&mut self, bound: Duration) {
        let Some(locks) = self.locks.clone().filter(|_| self.leaving.is_none()) else {
            return;
        };
        let done = Arc::new(Mutex::new(None));
        self.leaving = Some(Arc::clone(&done));
        self.spawn(async move {
            let end = locks.shutdown(bound).await;
            *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(end.remains);
        });
    }

    /// It is on its way out.
    pub(super) fn leaves(&self) -> bool {
        self.leaving.is_some()
    }

    /// What its orderly end left undone, once that has come and no task is left.
    pub(super) fn has_left(&self) -> Option<Left> {
        let left = self.leaving.as_ref()?;
        let left = *left.lock().unwrap_or_else(PoisonError::into_inner);
        left.filter(|_| self.rests())
    }

    /// Its counters, as its last word.
    pub(super) fn tally(&self) {
        let mut counters = std::collections::BTreeMap::new();
        for (event, metric, label) in COUNTERS {
            // Whole numbers below 2^53.
            let value = self.counters.total(metric, label) as i64;
            counters.insert((*event).to_owned(), value);
        }
        let mut state = self.world.lock();
        let now = state.now;
        state.tape.note(now, &self.who, Entry::Tally { counters });
    }

    /// Tasks that are alive on its runtime.
    pub(super) fn alive(&self) -> u64 {
        self.runtime.metrics().num_alive_tasks() as u64
    }

    /// Lets go of the client: what is left of it ends by itself.
    pub(super) fn close(&mut self) {
        self.locks = None;
        self.leaving = None;
        self.tasks.clear();
        self.take_turn();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever its tasks do while they are dropped, a process that is gone says nothing.
        self.silent.store(true, Ordering::Relaxed);
        if let Some(host) = self.world.lock().hosts.get_mut(self.slot) {
            host.alive = false;
            host.paused_until = 0;
        }
    }
}
