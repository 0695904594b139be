//! One simulated process: the real client on its own runtime, which runs only when the simulation
//! lets it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::observe::Counters;
use leasehold_core::policy::PolicyBook;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{SharedStore, StoreError, WakeRegistry};
use leasehold_core::{Locks, PendingWork};
use leasehold_http::{HttpOptions, HttpStore};
use tokio::task::JoinHandle;

use super::class;
use super::client_setup::ClientSetup;
use super::clock::ProcessClock;
use super::daemon::DAEMON_URL;
use super::daemon_holds::DaemonHolds;
use super::http_client::SimHttpClient;
use super::http_leases::PlainHttp;
use super::random::SimRandom;
use super::stepped_runtime::SteppedRuntime;
use super::store::SimStore;
use super::stream::SimConnector;
use super::worker::SimWorker;
use super::world::SimWorld;
use leasehold_drill::history::HistoryEntry;
use leasehold_drill::invariant::COMPARED_COUNTERS;

// Suffixes of the history names of HTTP clients: hold kept by the daemon, and plain HTTP. Their
// events are numbered apart from the library's client, and the oracle wants no gaps.
pub(super) const CLIENT_SUFFIXES: [&str; 2] = ["k", "p"];

/// One life of a client process.
#[derive(Debug)]
pub(super) struct SimProcess {
    slot: usize,
    pub(super) who: Arc<str>,
    pub(super) locks: Option<Locks>,
    pub(super) wakers: Arc<WakeRegistry>,
    world: Arc<SimWorld>,
    silent: Arc<AtomicBool>,
    counters: Arc<Counters>,
    attempts: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    // By client suffix: counters of acquires, writes and events.
    suffix_counters: [[Arc<AtomicU64>; 3]; 2],
    tasks: Vec<JoinHandle<()>>,
    // The work that the orderly shutdown left, once it has finished.
    shutdown: Option<Arc<Mutex<Option<PendingWork>>>>,
    // Connection to the daemon for the clients that do without the library.
    pub(super) daemon: Option<Arc<leasehold_http::DaemonClient>>,
    runtime: SteppedRuntime,
}

impl SimProcess {
    /// Starts the process of a host, without any work yet.
    pub(super) fn start(world: &Arc<SimWorld>, slot: usize) -> Result<Self, String> {
        let (plan, life, who) = world.lock().register_process(slot).ok_or("no such host")?;
        let runtime = SteppedRuntime::new()?;
        let wakers = Arc::new(WakeRegistry::default());
        let (store, daemon): (SharedStore, _) = if plan.daemon.is_some() {
            let (store, daemon) = through_daemon(world, slot, life).map_err(|bad| bad.to_string())?;
            (Arc::new(store), Some(Arc::new(daemon)))
        } else {
            (Arc::new(SimStore::new(world, slot, life, &wakers)), None)
        };
        let client = ClientSetup::new(world, slot, &plan, &who)?;
        let (silent, counters) = (Arc::clone(&client.silent), Arc::clone(&client.counters));
        let seed = SimRandom::keyed(plan.seed, [0xc11e, slot as u64, u64::from(life)]).below(u64::MAX);
        let builder =
            Locks::builder(store).clock(Arc::new(client.clock.clone())).random(SeededRandom::shared(seed));
        let builder = client.configure(builder);
        // `build` spawns background tasks, so it needs the runtime's context.
        let locks = runtime.block_on(async { builder.build() }).map_err(|bad| bad.to_string())?;
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
            suffix_counters: Default::default(),
            tasks: Vec::new(),
            shutdown: None,
            daemon,
            runtime,
        })
    }

    /// A worker of this process for one class.
    pub(super) fn worker(&self, class: &str, number: u64) -> Option<SimWorker> {
        let state = self.world.lock();
        let life = state.hosts.get(self.slot)?.life;
        let seed = state.plan.seed;
        drop(state);
        Some(SimWorker {
            world: Arc::clone(&self.world),
            slot: self.slot,
            life,
            who: Arc::clone(&self.who),
            clock: ProcessClock { world: Arc::clone(&self.world), slot: self.slot },
            locks: self.locks.clone()?,
            class: class.to_owned(),
            random: SimRandom::keyed(seed, [0x303c, number, (self.slot as u64) << 32 | u64::from(life)]),
            attempts: Arc::clone(&self.attempts),
            writes: Arc::clone(&self.writes),
            recorded_class: Mutex::new(None),
        })
    }

    /// A task that lets the daemon keep its holds.
    pub(super) fn daemon_hold_client(&self, class: &str, number: u64) -> Option<SimHttpClient<DaemonHolds>> {
        let heartbeat = self.world.lock().plan.daemon.as_ref()?.heartbeat;
        let heartbeat = Duration::from_millis(heartbeat);
        self.http_client(class, number, 0, DaemonHolds { heartbeat })
    }

    /// A task that keeps its own leases with plain HTTP.
    pub(super) fn plain_http_client(&self, class: &str, number: u64) -> Option<SimHttpClient<PlainHttp>> {
        self.http_client(class, number, 1, PlainHttp)
    }

    fn http_client<W>(&self, class: &str, number: u64, which: usize, way: W) -> Option<SimHttpClient<W>> {
        let mut me = self.worker(class, number)?;
        let [attempts, writes, told] = self.suffix_counters.get(which)?;
        me.who = format!("{}{}", self.who, CLIENT_SUFFIXES.get(which)?).into();
        (me.attempts, me.writes) = (Arc::clone(attempts), Arc::clone(writes));
        let plan = Arc::clone(&self.world.lock().plan);
        let book = PolicyBook::from_text(&class::policy_text(&plan.classes), "sim").ok()?;
        Some(SimHttpClient {
            class: book.class(class, Moment::ZERO).ok()?,
            daemon: Arc::clone(self.daemon.as_ref()?),
            next_event: Arc::clone(told),
            worker: Arc::new(me),
            protocol: way,
        })
    }

    /// Spawns a task and runs the process until it is idle.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(self.runtime.spawn(work));
        self.run_ready();
    }

    /// Runs the process until it is idle.
    pub(super) fn run_ready(&self) {
        self.runtime.run_until_idle();
    }

    /// Whether all spawned tasks have ended.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    /// Pending work of the client's keeper.
    pub(super) fn pending_work(&self) -> PendingWork {
        match &self.locks {
            Some(locks) => self.runtime.poll_until_idle(locks.pending()).unwrap_or_default(),
            None => PendingWork::default(),
        }
    }

    /// Begins an orderly shutdown.
    pub(super) fn begin_shutdown(&mut self, bound: Duration) {
        let Some(locks) = self.locks.clone().filter(|_| self.shutdown.is_none()) else {
            return;
        };
        let done = Arc::new(Mutex::new(None));
        self.shutdown = Some(Arc::clone(&done));
        self.spawn(async move {
            let end = locks.shutdown(bound).await;
            *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(end.pending);
        });
    }

    /// The orderly shutdown has begun.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown.is_some()
    }

    /// The work that the orderly shutdown left; `None` until it has finished and all tasks have ended.
    pub(super) fn shutdown_leftover(&self) -> Option<PendingWork> {
        let left = self.shutdown.as_ref()?;
        let left = *left.lock().unwrap_or_else(PoisonError::into_inner);
        left.filter(|_| self.is_idle())
    }

    /// Records the counters; called at the end of a life.
    pub(super) fn record_counters(&self) {
        record_client_counters(&self.world, &self.who, &self.counters);
    }

    /// Number of live tasks on the runtime.
    pub(super) fn live_tasks(&self) -> u64 {
        self.runtime.live_tasks()
    }

    /// Drops the client, so that its background tasks end.
    pub(super) fn drop_client(&mut self) {
        self.locks = None;
        self.daemon = None;
        self.shutdown = None;
        self.tasks.clear();
        self.run_ready();
    }
}

/// Records a client's counters.
pub(super) fn record_client_counters(world: &SimWorld, who: &str, counted: &Counters) {
    let mut counters = std::collections::BTreeMap::new();
    for (event, metric, label) in COMPARED_COUNTERS {
        // The counters are whole numbers below 2^53, so the cast is exact.
        let value = counted.total(metric, label) as i64;
        counters.insert((*event).to_owned(), value);
    }
    let mut state = world.lock();
    let now = state.now;
    state.history.record(now, who, HistoryEntry::Tally { counters });
}

/// Opens the daemon twice: as a store, and for the holds that it keeps.
fn through_daemon(
    world: &Arc<SimWorld>,
    slot: usize,
    life: u32,
) -> Result<(HttpStore, leasehold_http::DaemonClient), StoreError> {
    let seed = world.lock().plan.seed;
    let parts = |which: u64| {
        let clock = ProcessClock { world: Arc::clone(world), slot };
        let random = SimRandom::keyed(seed, [0x417f, (slot as u64) << 32 | u64::from(life), which]);
        let dial = SimConnector { world: Arc::clone(world), slot, life };
        let random = SeededRandom::shared(random.below(u64::MAX));
        leasehold_http::Environment::new(Arc::new(clock), random, Arc::new(dial))
    };
    let options = HttpOptions::parse(DAEMON_URL)?;
    let store = HttpStore::open_with(options.clone(), parts(0))?;
    Ok((store, leasehold_http::DaemonClient::open_with(options, parts(1))?))
}

impl Drop for SimProcess {
    fn drop(&mut self) {
        // Tasks emit events while they are dropped. A killed process must not record any.
        self.silent.store(true, Ordering::Relaxed);
        let mut state = self.world.lock();
        if let Some(host) = state.hosts.get_mut(self.slot) {
            host.alive = false;
            host.paused_until = 0;
        }
        let now = state.now;
        // Running acquires end with the process, so their leases count as orphans from now on.
        state.orphans.process_dies(self.slot, now);
        // Dropped after the lock: a waker may own a task whose drop locks the world.
        let wakers = state.close_all_of(self.slot);
        drop(state);
        drop(wakers);
    }
}
