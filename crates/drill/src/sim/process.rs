//! One simulated process: the real client on a runtime of its own, which runs only when the director lets it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{Failure, SharedStore, Wakers};
use leasehold_core::{Holder, Left, Locks};
use leasehold_http::{HttpOptions, HttpStore};
use tokio::task::JoinHandle;

use super::class;
use super::clock::ProcessClock;
use super::daemon::URL;
use super::dice::Dice;
use super::kept::Kept;
use super::plain::Plain;
use super::store::SimStore;
use super::stream::SimDial;
use super::tape::Tap;
use super::tenant::Tenant;
use super::turns::Turns;
use super::worker::Worker;
use super::world::World;
use crate::history::Entry;
use crate::invariant::COUNTERS;

/// What a history adds to a process's name for those of its clients that do without the library: their events and numbers
/// are their own. Kept by the daemon, and plain.
pub(super) const APART: [&str; 2] = ["k", "p"];

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
    /// What clients without the library number apart, by their [`APART`]: acquires, writes, events.
    apart: [[Arc<AtomicU64>; 3]; 2],
    tasks: Vec<JoinHandle<()>>,
    /// What an orderly end left undone, once it has ended.
    leaving: Option<Arc<Mutex<Option<Left>>>>,
    /// The way to the daemon, where it keeps holds.
    pub(super) daemon: Option<Arc<leasehold_http::Daemon>>,
    turns: Turns,
}

impl Process {
    /// Starts the process of a host, without any work yet.
    pub(super) fn start(world: &Arc<World>, slot: usize) -> Result<Self, String> {
        let (plan, life, who) = world.lock().begin(slot).ok_or("no such host")?;
        let turns = Turns::new()?;
        let clock = ProcessClock {
            world: Arc::clone(world),
            slot,
        };
        let wakers = Arc::new(Wakers::default());
        let (store, daemon): (SharedStore, _) = if plan.daemon.is_some() {
            let (store, daemon) = through_daemon(world, slot, life).map_err(|bad| bad.to_string())?;
            (Arc::new(store), Some(Arc::new(daemon)))
        } else {
            let store = SimStore {
                world: Arc::clone(world),
                slot,
                life,
                kind: plan.kind,
                queue: plan.queue,
                wakers: Arc::clone(&wakers),
            };
            (Arc::new(store), None)
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
        let builder = Locks::builder(store)
            .policies(book)
            .clock(Arc::new(clock))
            .random(SeededRandom::shared(seed))
            .holder(holder)
            .observer(Arc::new(tap))
            .observer(Arc::clone(&counters) as Arc<_>)
            .without_log();
        let locks = turns
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
            apart: Default::default(),
            tasks: Vec::new(),
            leaving: None,
            daemon,
            turns,
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

    /// A task of this process that has the daemon keep its holds.
    pub(super) fn kept(&self, class: &str, number: u64) -> Option<Tenant<Kept>> {
        let heartbeat = self.world.lock().plan.daemon.as_ref()?.heartbeat;
        let heartbeat = Duration::from_millis(heartbeat);
        self.tenant(class, number, 0, Kept { heartbeat })
    }

    /// A task of this process that keeps its own leases with nothing but HTTP.
    pub(super) fn plain(&self, class: &str, number: u64) -> Option<Tenant<Plain>> {
        self.tenant(class, number, 1, Plain)
    }

    fn tenant<W>(&self, class: &str, number: u64, which: usize, way: W) -> Option<Tenant<W>> {
        let mut me = self.worker(class, number)?;
        let [attempts, writes, told] = self.apart.get(which)?;
        me.who = format!("{}{}", self.who, APART.get(which)?).into();
        (me.attempts, me.writes) = (Arc::clone(attempts), Arc::clone(writes));
        let plan = Arc::clone(&self.world.lock().plan);
        let book = PolicyBook::from_text(&class::text(&plan.classes), "sim").ok()?;
        Some(Tenant {
            class: book.class(class, Moment::ZERO).ok()?,
            daemon: Arc::clone(self.daemon.as_ref()?),
            told: Arc::clone(told),
            me: Arc::new(me),
            way,
        })
    }

    /// Lets it do something until it can do no more for now.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(self.turns.spawn(work));
        self.take_turn();
    }

    /// Polls what can be polled.
    pub(super) fn take_turn(&self) {
        self.turns.take();
    }

    /// Its tasks have ended.
    pub(super) fn rests(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    /// What its keeper still has to do.
    pub(super) fn left(&self) -> Left {
        match &self.locks {
            Some(locks) => self.turns.at_once(locks.left()).unwrap_or_default(),
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
        tally(&self.world, &self.who, &self.counters);
    }

    /// Tasks that are alive on its runtime.
    pub(super) fn alive(&self) -> u64 {
        self.turns.alive()
    }

    /// Lets go of the client: what is left of it ends by itself.
    pub(super) fn close(&mut self) {
        self.locks = None;
        self.daemon = None;
        self.leaving = None;
        self.tasks.clear();
        self.take_turn();
    }
}

/// A client's counters, as its last word.
pub(super) fn tally(world: &World, who: &str, counted: &Counters) {
    let mut counters = std::collections::BTreeMap::new();
    for (event, metric, label) in COUNTERS {
        // Whole numbers below 2^53.
        let value = counted.total(metric, label) as i64;
        counters.insert((*event).to_owned(), value);
    }
    let mut state = world.lock();
    let now = state.now;
    state.tape.note(now, who, Entry::Tally { counters });
}

/// The way through the daemon: as a store, and to the holds that it keeps.
fn through_daemon(
    world: &Arc<World>,
    slot: usize,
    life: u32,
) -> Result<(HttpStore, leasehold_http::Daemon), Failure> {
    let seed = world.lock().plan.seed;
    let parts = |which: u64| {
        let clock = ProcessClock {
            world: Arc::clone(world),
            slot,
        };
        let dice = Dice::keyed(seed, [0x417f, (slot as u64) << 32 | u64::from(life), which]);
        let dial = SimDial {
            world: Arc::clone(world),
            slot,
            life,
        };
        let random = SeededRandom::shared(dice.below(u64::MAX));
        leasehold_http::Parts::new(Arc::new(clock), random, Arc::new(dial))
    };
    let options = HttpOptions::parse(URL)?;
    let store = HttpStore::open_with(options.clone(), parts(0))?;
    Ok((store, leasehold_http::Daemon::open_with(options, parts(1))?))
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever its tasks do while they are dropped, a process that is gone says nothing.
        self.silent.store(true, Ordering::Relaxed);
        let mut state = self.world.lock();
        if let Some(host) = state.hosts.get_mut(self.slot) {
            host.alive = false;
            host.paused_until = 0;
        }
        let now = state.now;
        state.orphans.dies(self.slot, now);
        let wakers = state.hang_up_all(self.slot);
        drop(state);
        drop(wakers);
    }
}
