//! What all processes of a history share: one true time, one agenda, the network, the store, the target, the tape.
//!
//! Nothing here runs by itself. A process asks (sleep, send, write), the world notes it in the agenda, and the
//! director carries the agenda out in order. Behind one lock only because clocks and stores must be `Sync`; a history runs
//! on one thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use leasehold_core::Name;
use tokio::sync::oneshot;

use super::books::Books;
use super::drift::{Drift, NEVER, Nanos};
use super::engine::{Engine, Reply};
use super::network::Network;
use super::operator::InForce;
use super::orphans::Ledger;
use super::plan::Plan;
use super::tape::Tape;
use super::target::{Answered, Target, Write};
use super::wire::{Packet, Wire};

/// What is going to happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A sleep of a process is over.
    Timer { slot: usize, waker: Waker },
    /// A message arrives at the store.
    Deliver { call: u64, copy: bool },
    /// An answer arrives at a process.
    Answer {
        slot: usize,
        life: u32,
        to: oneshot::Sender<Reply>,
        reply: Reply,
    },
    /// A waiter is told to ask again.
    Hint { slot: usize, life: u32, bell: String },
    /// A write arrives at the target.
    Write {
        write: Write,
        to: oneshot::Sender<Answered>,
    },
    /// The target's answer arrives at a process.
    Wrote {
        slot: usize,
        life: u32,
        to: oneshot::Sender<Answered>,
        answer: Answered,
    },
    /// Something arrives on the network between clients and daemon.
    Wire(Packet),
    /// The daemon's disk has written what waited.
    Disk { slot: usize, life: u32 },
    /// A fault strikes, by its number in the plan.
    Strike(usize),
    /// A fault ends.
    Mend(Mend),
}

/// The end of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mend {
    Continue(usize, u32),
    Return(usize),
    Serve,
    Rejoin(usize),
    TakeOver { away: Nanos, kind: &'static str },
    Hear,
}

impl Event {
    /// The process in which it happens; one that stands still sees it when it goes on.
    pub(super) fn inside(&self) -> Option<usize> {
        match self {
            Self::Timer { slot, .. }
            | Self::Answer { slot, .. }
            | Self::Hint { slot, .. }
            | Self::Wrote { slot, .. }
            | Self::Disk { slot, .. } => Some(*slot),
            Self::Wire(packet) => packet.inside(),
            _ => None,
        }
    }
}

/// A place where a process runs: what outlives the process.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) drift: Drift,
    /// How far its clock lags behind what it should show: only by mistake.
    pub(super) behind: Nanos,
    pub(super) paused_from: Nanos,
    pub(super) paused_until: Nanos,
    /// Grows with every process that runs here.
    pub(super) life: u32,
    pub(super) alive: bool,
    /// Cut off from the store, or from the daemon where there is one, silently or not.
    pub(super) cut: Option<bool>,
    /// Until then.
    pub(super) cut_until: Nanos,
    /// The daemon's host.
    pub(super) serves: bool,
}

impl Host {
    /// The name of the process that runs here now.
    pub(super) fn who(&self, slot: usize) -> String {
        if self.serves {
            format!("d.{}", self.life)
        } else {
            format!("c{slot}.{}", self.life)
        }
    }
}

/// Everything that is shared.
#[derive(Debug)]
pub(super) struct State {
    pub(super) plan: Arc<Plan>,
    pub(super) now: Nanos,
    agenda: BTreeMap<(Nanos, u64), Event>,
    next: u64,
    pub(super) names: Vec<Name>,
    pub(super) hosts: Vec<Host>,
    pub(super) network: Network,
    pub(super) wire: Wire,
    pub(super) books: Books,
    /// What an operator made of the daemon's classes.
    pub(super) in_force: InForce,
    /// The daemon's waiters, by the bells that it listens to: how many listen.
    pub(super) bells: BTreeMap<String, usize>,
    /// How often each kind of fault happened.
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) engine: Engine,
    /// Leases that nobody wants.
    pub(super) orphans: Ledger,
    pub(super) target: Target,
    pub(super) tape: Tape,
    /// Faults are over.
    pub(super) healed: bool,
    /// Workers take no more locks.
    pub(super) stopping: bool,
    /// Waiters are not told.
    pub(super) deaf: bool,
    /// Messages, writes and hints that are on their way.
    pub(super) flying: usize,
}

impl State {
    /// A fault has happened.
    pub(super) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// A process begins on a host: the plan, which life of the host it is, and its name.
    pub(super) fn begin(&mut self, slot: usize) -> Option<(Arc<Plan>, u32, String)> {
        let plan = Arc::clone(&self.plan);
        let host = self.hosts.get_mut(slot)?;
        host.alive = true;
        host.life += 1;
        host.paused_until = 0;
        Some((plan, host.life, host.who(slot)))
    }

    /// Notes what will happen; answers under which key.
    pub(super) fn at(&mut self, at: Nanos, event: Event) -> (Nanos, u64) {
        let key = (at.max(self.now), self.next);
        self.next += 1;
        if !matches!(event, Event::Timer { .. } | Event::Strike(_) | Event::Mend(_)) {
            self.flying += 1;
        }
        self.agenda.insert(key, event);
        key
    }

    pub(super) fn after(&mut self, by: Nanos, event: Event) {
        self.at(self.now.saturating_add(by), event);
    }

    /// Takes what happens next, if it happens by then, and moves the time there. What a process that stands still would see
    /// is put off.
    pub(super) fn pop(&mut self, by: Nanos) -> Option<Event> {
        loop {
            let entry = self.agenda.first_entry().filter(|entry| entry.key().0 <= by)?;
            let ((at, _), event) = entry.remove_entry();
            self.pass(at);
            if !matches!(event, Event::Timer { .. } | Event::Strike(_) | Event::Mend(_)) {
                self.flying -= 1;
            }
            let until = event
                .inside()
                .and_then(|slot| self.hosts.get(slot))
                .map_or(0, |host| host.paused_until);
            if until > self.now {
                self.at(until, event);
                continue;
            }
            return Some(event);
        }
    }
}

/// The shared state behind its lock.
#[derive(Debug)]
pub(super) struct World(Mutex<State>);

impl World {
    pub(super) fn new(
        plan: Arc<Plan>,
        names: Vec<Name>,
        hosts: Vec<Host>,
        engine: Engine,
        books: Books,
    ) -> Arc<Self> {
        let target = Target::new(plan.mistake);
        Arc::new(Self(Mutex::new(State {
            plan,
            now: super::drift::SEC,
            agenda: BTreeMap::new(),
            next: 0,
            names,
            hosts,
            network: Network::default(),
            wire: Wire::default(),
            books,
            in_force: InForce::default(),
            bells: BTreeMap::new(),
            faults: BTreeMap::new(),
            engine,
            orphans: Ledger::default(),
            target,
            tape: Tape::default(),
            healed: false,
            stopping: false,
            deaf: false,
            flying: 0,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A history that panicked is over.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sleep of a process, in the agenda as long as it is wanted.
#[derive(Debug)]
pub(super) struct Sleeping {
    pub(super) world: Arc<World>,
    pub(super) slot: usize,
    /// In true time.
    pub(super) due: Nanos,
    pub(super) key: Option<(Nanos, u64)>,
}

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if self.due == NEVER {
            return std::task::Poll::Pending;
        }
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        if state.now >= self.due {
            let gone = self.key.take().and_then(|key| state.agenda.remove(&key));
            drop(state);
            drop(gone);
            return std::task::Poll::Ready(());
        }
        let fresh = Event::Timer {
            slot: self.slot,
            waker: cx.waker().clone(),
        };
        let old = match self.key.and_then(|key| state.agenda.get_mut(&key)) {
            Some(event) => Some(std::mem::replace(event, fresh)),
            None => {
                let due = self.due;
                self.key = Some(state.at(due, fresh));
                None
            }
        };
        // Outside the lock: a waker may be the last thing that keeps a task.
        drop(state);
        drop(old);
        std::task::Poll::Pending
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let event = self.world.lock().agenda.remove(&key);
            drop(event);
        }
    }
}
