//! The state that all processes of a history share: true time, schedule, networks, store, target and
//! history.
//!
//! Nothing here runs by itself. A process calls (sleep, send, write), the world schedules an event,
//! and the simulation executes events in order. A history runs on one thread. The lock exists
//! because clocks and stores must be `Sync`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use leasehold_core::Name;
use tokio::sync::oneshot;

use super::daemon_disk::DaemonDisk;
use super::daemon_network::{DaemonNetwork, Packet};
use super::drift::{ClockDrift, NEVER, Nanos};
use super::engine::{Engine, StoreReply};
use super::history_buffer::SimHistoryBuffer;
use super::operator::ClassVersions;
use super::orphans::OrphanTracker;
use super::plan::SimPlan;
use super::store_network::StoreNetwork;
use super::target::{SimTarget, SimWrite, SimWriteReply};

/// A scheduled event.
#[derive(Debug)]
pub(super) enum SimEvent {
    /// A sleep of a process ends.
    Timer { slot: usize, waker: Waker },
    /// A request arrives at the store.
    Deliver { call: u64, copy: bool },
    /// A reply arrives at a process.
    Reply { slot: usize, life: u32, to: oneshot::Sender<StoreReply>, reply: StoreReply },
    /// A wake-up arrives at a waiter.
    Hint { slot: usize, life: u32, wake_key: String },
    /// A write arrives at the target.
    Write { write: SimWrite, to: oneshot::Sender<SimWriteReply> },
    /// The target's reply arrives at a process.
    WriteReply { slot: usize, life: u32, to: oneshot::Sender<SimWriteReply>, answer: SimWriteReply },
    /// A packet arrives on the network between clients and daemon.
    Packet(Packet),
    /// The daemon's disk has finished.
    Disk { slot: usize, life: u32 },
    /// A fault of the plan begins, by its index.
    FaultBegins(usize),
    /// A fault ends.
    FaultEnds(FaultEnd),
}

/// The end of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum FaultEnd {
    Resume(usize, u32),
    Restart(usize),
    StoreServes,
    PartitionEnds(usize),
    TakeOver { away: Nanos, kind: &'static str },
    DeliverHints,
}

impl SimEvent {
    /// The process that handles the event. A paused process handles it when it continues.
    pub(super) fn process_slot(&self) -> Option<usize> {
        match self {
            Self::Timer { slot, .. }
            | Self::Reply { slot, .. }
            | Self::Hint { slot, .. }
            | Self::WriteReply { slot, .. }
            | Self::Disk { slot, .. } => Some(*slot),
            Self::Packet(packet) => packet.process_slot(),
            _ => None,
        }
    }
}

/// A machine on which processes run one after another. It survives them.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) drift: ClockDrift,
    // How far its clock is behind; nonzero only with a clock mistake.
    pub(super) clock_lag: Nanos,
    pub(super) paused_from: Nanos,
    pub(super) paused_until: Nanos,
    // Number of processes that have run here.
    pub(super) life: u32,
    pub(super) alive: bool,
    // Cut off from the store, or from the daemon where there is one. `true`: without any response.
    pub(super) partition: Option<bool>,
    // End of that partition.
    pub(super) partition_until: Nanos,
    pub(super) is_daemon: bool,
}

impl Host {
    /// The name of the current process, as in the history.
    pub(super) fn process_name(&self, slot: usize) -> String {
        self.name_in_life(slot, self.life)
    }

    /// The name of the process of one life, as in the history.
    pub(super) fn name_in_life(&self, slot: usize, life: u32) -> String {
        if self.is_daemon { format!("d.{life}") } else { format!("c{slot}.{life}") }
    }
}

/// Everything that is shared.
#[derive(Debug)]
pub(super) struct WorldState {
    pub(super) plan: Arc<SimPlan>,
    pub(super) now: Nanos,
    schedule: BTreeMap<(Nanos, u64), SimEvent>,
    next_sequence: u64,
    pub(super) names: Vec<Name>,
    pub(super) hosts: Vec<Host>,
    pub(super) store_network: StoreNetwork,
    pub(super) daemon_network: DaemonNetwork,
    pub(super) daemon_disk: DaemonDisk,
    // Versions of the daemon's classes, changed by operators.
    pub(super) class_versions: ClassVersions,
    // Per wake-up key, how many of the daemon's waiters listen to it.
    pub(super) wake_keys: BTreeMap<String, usize>,
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) engine: Engine,
    // Measures leases that no acquire wants any more.
    pub(super) orphans: OrphanTracker,
    pub(super) target: SimTarget,
    pub(super) history: SimHistoryBuffer,
    // All faults have ended.
    pub(super) faults_ended: bool,
    // Workers acquire no more locks.
    pub(super) stopping: bool,
    // Wake-up hints are dropped.
    pub(super) drops_hints: bool,
    // Messages, writes and hints under way; the drain waits until there are none.
    pub(super) in_flight: usize,
}

impl WorldState {
    /// Counts a fault.
    pub(super) fn count_fault(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Registers a new process on a host. Returns the plan, the life's number and the process name.
    pub(super) fn register_process(&mut self, slot: usize) -> Option<(Arc<SimPlan>, u32, String)> {
        let plan = Arc::clone(&self.plan);
        let host = self.hosts.get_mut(slot)?;
        host.alive = true;
        // Replies and packets carry the life number, so those for the previous process are dropped.
        host.life += 1;
        host.paused_until = 0;
        Some((plan, host.life, host.process_name(slot)))
    }

    /// Schedules an event and returns its key.
    pub(super) fn schedule_at(&mut self, at: Nanos, event: SimEvent) -> (Nanos, u64) {
        // The sequence number keeps events of the same instant in the order of their scheduling.
        // An event in the past would move the time back.
        let key = (at.max(self.now), self.next_sequence);
        self.next_sequence += 1;
        // Timers and faults are not traffic: a sleeping process must not keep the drain waiting.
        if !matches!(event, SimEvent::Timer { .. } | SimEvent::FaultBegins(_) | SimEvent::FaultEnds(_)) {
            self.in_flight += 1;
        }
        self.schedule.insert(key, event);
        key
    }

    pub(super) fn schedule_after(&mut self, by: Nanos, event: SimEvent) {
        self.schedule_at(self.now.saturating_add(by), event);
    }

    /// Takes the next event that is due by `by`, and moves the time to it.
    pub(super) fn pop_due(&mut self, by: Nanos) -> Option<SimEvent> {
        loop {
            let entry = self.schedule.first_entry().filter(|entry| entry.key().0 <= by)?;
            let ((at, _), event) = entry.remove_entry();
            self.advance_to(at);
            if !matches!(event, SimEvent::Timer { .. } | SimEvent::FaultBegins(_) | SimEvent::FaultEnds(_)) {
                self.in_flight -= 1;
            }
            let until = event
                .process_slot()
                .and_then(|slot| self.hosts.get(slot))
                .map_or(0, |host| host.paused_until);
            // A paused process sees the event when it continues.
            if until > self.now {
                self.schedule_at(until, event);
                continue;
            }
            return Some(event);
        }
    }
}

/// The shared state behind its lock.
#[derive(Debug)]
pub(super) struct SimWorld(Mutex<WorldState>);

impl SimWorld {
    pub(super) fn new(
        plan: Arc<SimPlan>,
        names: Vec<Name>,
        hosts: Vec<Host>,
        engine: Engine,
        books: DaemonDisk,
    ) -> Arc<Self> {
        let target = SimTarget::new(plan.mistake);
        Arc::new(Self(Mutex::new(WorldState {
            plan,
            now: super::drift::SEC,
            schedule: BTreeMap::new(),
            next_sequence: 0,
            names,
            hosts,
            store_network: StoreNetwork::default(),
            daemon_network: DaemonNetwork::default(),
            daemon_disk: books,
            class_versions: ClassVersions::default(),
            wake_keys: BTreeMap::new(),
            faults: BTreeMap::new(),
            engine,
            orphans: OrphanTracker::default(),
            target,
            history: SimHistoryBuffer::default(),
            faults_ended: false,
            stopping: false,
            drops_hints: false,
            in_flight: 0,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WorldState> {
        // A poisoned lock only means that the history panicked, which is counted elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sleep of a process; it is scheduled as long as the future exists.
#[derive(Debug)]
pub(super) struct SimSleep {
    pub(super) world: Arc<SimWorld>,
    pub(super) slot: usize,
    // In true time.
    pub(super) due: Nanos,
    pub(super) key: Option<(Nanos, u64)>,
}

impl Future for SimSleep {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if self.due == NEVER {
            return std::task::Poll::Pending;
        }
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        if state.now >= self.due {
            let gone = self.key.take().and_then(|key| state.schedule.remove(&key));
            drop(state);
            drop(gone);
            return std::task::Poll::Ready(());
        }
        let fresh = SimEvent::Timer { slot: self.slot, waker: cx.waker().clone() };
        let old = match self.key.and_then(|key| state.schedule.get_mut(&key)) {
            // A later poll may bring another waker; the timer keeps its place in the schedule.
            Some(event) => Some(std::mem::replace(event, fresh)),
            None => {
                let due = self.due;
                self.key = Some(state.schedule_at(due, fresh));
                None
            }
        };
        // Outside the lock: a waker may hold the last reference to a task.
        drop(state);
        drop(old);
        std::task::Poll::Pending
    }
}

impl Drop for SimSleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let event = self.world.lock().schedule.remove(&key);
            drop(event);
        }
    }
}
