//! Runs one history: executes the schedule, begins and ends faults, then checks the recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::Name;
use leasehold_core::testbed::ExpiryClock;
use tracing::subscriber::NoSubscriber;

use super::daemon::SimDaemon;
use super::daemon_disk::{self, DaemonDisk};
use super::daemon_network::{Packet, SimSide, WakeTarget};
use super::drift::{ClockDrift, MAX_DRIFT_PPM, Nanos, SEC};
use super::engine::Engine;
use super::mistake::Mistake;
use super::orphans::OrphanStats;
use super::panics;
use super::plan::{Route, SimPlan};
use super::process::SimProcess;
use super::random::SimRandom;
use super::world::{Host, SimEvent, SimWorld};
use leasehold_drill::history::{History, HistoryEntry};
use leasehold_drill::oracle::{Judgement, judge};

// Ordinary histories stay far below this. Reaching it means that some task loops without end.
const MAX_EVENTS: u64 = 3_000_000;

/// The result of one simulated history.
#[derive(Debug)]
pub struct SimRun {
    /// What happened, in true time.
    pub history: History,
    /// The oracle's findings.
    pub judgement: Judgement,
    /// Numbers of the messages that met a fault. The shrinker spares them one by one.
    pub faulted_messages: Vec<u64>,
    /// How often each kind of fault happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// Leases that stood although their acquire had ended without a hold. Not measured with a daemon.
    pub orphans: OrphanStats,
    /// Number of events executed.
    pub events: u64,
    /// Simulated duration in nanoseconds.
    pub duration_nanos: u64,
}

impl SimRun {
    /// A hash over every record's JSON; equal for equal histories.
    #[must_use]
    pub fn digest(&self) -> u64 {
        // FNV-1a: the digest must be stable across runs, which std's default hasher does not promise.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for record in &self.history.records {
            for byte in serde_json::to_vec(record).unwrap_or_default() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }
}

/// Runs a plan and judges its history.
///
/// # Errors
/// A process cannot be started, or the run does not end.
pub fn run_plan(plan: &SimPlan) -> Result<SimRun, String> {
    // The daemons log every kill. Thousands are killed on purpose, so nothing is logged.
    tracing::subscriber::with_default(NoSubscriber::default(), || {
        panics::count_panics();
        let mut simulation = Simulation::new(plan)?;
        simulation.run()?;
        Ok(simulation.finish())
    })
}

/// One history in progress.
pub(super) struct Simulation {
    pub(super) plan: Arc<SimPlan>,
    pub(super) world: Arc<SimWorld>,
    pub(super) processes: Vec<Option<SimProcess>>,
    // `None` while the daemon is down, and in histories without one.
    pub(super) daemon: Option<SimDaemon>,
    // True time at which all faults end.
    pub(super) horizon: Nanos,
    start: Nanos,
    events: u64,
    // Fences come from the store's clock. Once it was stepped back the store must not lose data too,
    // or fences would go backwards.
    pub(super) stepped_back: bool,
    // The reverse: once the store has lost data, or is about to, its clock is not stepped back.
    pub(super) loses_data: bool,
}

impl Simulation {
    pub(super) fn new(plan: &SimPlan) -> Result<Self, String> {
        let plan = Arc::new(plan.clone());
        let random = SimRandom::keyed(plan.seed, [0xd1ce, 0, 0]);
        let error_factor = if plan.mistake == Mistake::FastClocks { 8 } else { 1 };
        let drift = || {
            let rate = i64::try_from(random.below(2 * MAX_DRIFT_PPM + 1)).unwrap_or(0);
            ClockDrift {
                offset: 3_600 * SEC + random.below(3_600 * SEC),
                rate_ppm: (rate - i64::try_from(MAX_DRIFT_PPM).unwrap_or(0)) * error_factor,
            }
        };
        let server = drift();
        let daemon = plan.daemon_slot();
        let hosts = (0..plan.clients + usize::from(daemon.is_some())).map(|slot| Host {
            // Processes that share the store's host share its clock. A daemon's clients do not.
            drift: if plan.profile.expiry_clock == ExpiryClock::HostBoot
                && daemon.is_none_or(|daemon| daemon == slot)
            {
                server
            } else {
                drift()
            },
            clock_lag: 0,
            paused_from: 0,
            paused_until: 0,
            life: 0,
            alive: false,
            partition: None,
            partition_until: 0,
            is_daemon: Some(slot) == daemon,
        });
        let names = (0..plan.names)
            .map(|n| Name::new(&format!("sim:{n}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|bad| bad.to_string())?;
        let engine = Engine::new(plan.profile, server, plan.mistake);
        let books = match daemon {
            Some(_) => DaemonDisk::new()?,
            None => DaemonDisk::default(),
        };
        let world = SimWorld::new(Arc::clone(&plan), names, hosts.collect(), engine, books);
        let began = world.lock().now;
        let mut simulation = Self {
            horizon: began + plan.horizon,
            processes: (0..plan.clients).map(|_| None).collect(),
            daemon: None,
            world,
            start: began,
            events: 0,
            stepped_back: false,
            loses_data: false,
            plan,
        };
        // The daemon first, so that the first client finds it listening.
        for slot in daemon.into_iter().chain(0..simulation.processes.len()) {
            simulation.start_process(slot)?;
        }
        let mut state = simulation.world.lock();
        for (number, strike) in simulation.plan.faults.iter().enumerate() {
            state.schedule_at(began + strike.at, SimEvent::FaultBegins(number));
        }
        drop(state);
        Ok(simulation)
    }

    /// Starts the process of a host with its workers, or the daemon.
    pub(super) fn start_process(&mut self, slot: usize) -> Result<(), String> {
        if self.is_daemon_slot(slot) {
            self.daemon = Some(SimDaemon::start(&self.world, slot)?);
            return Ok(());
        }
        let mut process = SimProcess::start(&self.world, slot)?;
        let daemon = self.plan.daemon.as_ref();
        for (task, class) in self.plan.classes.iter().enumerate() {
            let route = daemon.and_then(|daemon| daemon.routes.get(task));
            let (class, number) = (&class.name, task as u64);
            match route.copied().unwrap_or(Route::Library) {
                Route::Library => {
                    if let Some(worker) = process.worker(class, number) {
                        process.spawn(worker.run());
                    }
                }
                Route::Kept => {
                    if let Some(client) = process.daemon_hold_client(class, number) {
                        process.spawn(client.run());
                    }
                }
                Route::Plain => {
                    if let Some(client) = process.plain_http_client(class, number) {
                        process.spawn(client.run());
                    }
                }
            }
        }
        if let Some(place) = self.processes.get_mut(slot) {
            *place = Some(process);
        }
        Ok(())
    }

    /// Whether this is the daemon's host.
    pub(super) fn is_daemon_slot(&self, slot: usize) -> bool {
        self.plan.daemon_slot() == Some(slot)
    }

    fn run(&mut self) -> Result<(), String> {
        // Time is exact here: nothing is noticed later than it happens.
        self.record(HistoryEntry::Slack { late: 0 });
        self.run_until(self.horizon)?;
        self.end_faults();
        self.drain()?;
        self.record_calm();
        // Long enough for every lease to expire by any clock: 2 % is more than two clocks can diverge.
        let longest = self.plan.longest_lease();
        self.run_until(self.now() + longest + longest / 50 + 3 * SEC)?;
        self.probe_all()?;
        self.stop_all()?;
        self.run_until(self.now() + longest + longest / 50 + 3 * SEC)?;
        self.record_quiet();
        Ok(())
    }

    /// Executes the schedule up to a moment.
    pub(super) fn run_until(&mut self, by: Nanos) -> Result<(), String> {
        loop {
            let event = self.world.lock().pop_due(by);
            let Some(event) = event else { break };
            self.events += 1;
            if self.events > MAX_EVENTS {
                return Err(format!("{MAX_EVENTS} events and no end: something spins"));
            }
            self.dispatch(event)?;
        }
        self.world.lock().advance_to(by);
        Ok(())
    }

    fn dispatch(&mut self, event: SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Timer { slot, waker } => {
                waker.wake();
                self.run_process(slot);
            }
            SimEvent::Deliver { call, copy } => self.world.lock().deliver_to_store(call, copy),
            SimEvent::Reply { slot, life, to, reply } => {
                if self.is_alive(slot, life) {
                    let _ = to.send(reply);
                    self.run_process(slot);
                }
            }
            SimEvent::Hint { slot, life, wake_key } => {
                let wakers = match &self.daemon {
                    Some(daemon) if self.is_daemon_slot(slot) => Some(&daemon.wakers),
                    _ => self.process(slot).map(|process| &process.wakers),
                };
                if let Some(wakers) = wakers.filter(|_| self.is_alive(slot, life)) {
                    wakers.wake(&wake_key);
                    self.run_process(slot);
                }
            }
            SimEvent::Write { write, to } => self.world.lock().deliver_write(&write, to),
            SimEvent::WriteReply { slot, life, to, answer } => {
                if self.is_alive(slot, life) {
                    let _ = to.send(answer);
                    self.run_process(slot);
                }
            }
            SimEvent::Packet(packet) => self.deliver_packet(packet),
            SimEvent::Disk { slot, life } => {
                if self.is_alive(slot, life) {
                    daemon_disk::flush_writes(&self.world);
                    self.run_process(slot);
                }
            }
            SimEvent::FaultBegins(number) => self.begin_fault(number),
            SimEvent::FaultEnds(mend) => self.end_fault(mend)?,
        }
        Ok(())
    }

    /// Delivers a packet on the network between clients and daemon.
    fn deliver_packet(&self, packet: Packet) {
        let woken = self.world.lock().deliver_packet(packet);
        match woken {
            WakeTarget::Nothing => {}
            WakeTarget::Task { slot, waker } => {
                if let Some(waker) = waker {
                    waker.wake();
                    self.run_process(slot);
                }
            }
            WakeTarget::Connected { slot, life, to, opened } => {
                let conn = opened.as_ref().ok().copied();
                let taken = self.is_alive(slot, life) && to.send(opened).is_ok();
                // Without a taker the connection would stay open forever on the daemon's side.
                if let Some(conn) = conn.filter(|_| !taken) {
                    let waker = self.world.lock().close_end(conn, SimSide::Client);
                    drop(waker);
                }
                self.run_process(slot);
            }
        }
    }

    pub(super) fn process(&self, slot: usize) -> Option<&SimProcess> {
        self.processes.get(slot)?.as_ref()
    }

    fn run_process(&self, slot: usize) {
        match &self.daemon {
            Some(daemon) if self.is_daemon_slot(slot) => daemon.runtime.run_until_idle(),
            _ => {
                if let Some(process) = self.process(slot) {
                    process.run_ready();
                }
            }
        }
    }

    fn is_alive(&self, slot: usize, life: u32) -> bool {
        let state = self.world.lock();
        state.hosts.get(slot).is_some_and(|host| host.alive && host.life == life)
    }

    pub(super) fn now(&self) -> Nanos {
        self.world.lock().now
    }

    pub(super) fn record(&self, what: HistoryEntry) {
        self.record_for("director", what);
    }

    pub(super) fn record_for(&self, who: &str, what: HistoryEntry) {
        let mut state = self.world.lock();
        let now = state.now;
        state.history.record(now, who, what);
    }

    fn finish(self) -> SimRun {
        let Self { world, processes, daemon, start: began, events, .. } = self;
        // Dropping tasks may panic too, and must happen before panics are counted.
        drop((processes, daemon));
        let mut state = world.lock();
        let (now, count) = (state.now, panics::panic_count());
        if count > 0 {
            let kind = "panics".to_owned();
            state.history.record(now, "director", HistoryEntry::Remains { kind, count });
        }
        let history = History { records: std::mem::take(&mut state.history.records), damage: Vec::new() };
        let (mut struck, lasted) = (std::mem::take(&mut state.store_network.faulted), state.now - began);
        struck.append(&mut state.daemon_network.faulted);
        let faults = std::mem::take(&mut state.faults);
        let orphans = state.orphan_stats();
        drop(state);
        let judgement = judge(&history);
        SimRun {
            history,
            judgement,
            faulted_messages: struck,
            faults,
            orphans,
            events,
            duration_nanos: lasted,
        }
    }
}
