//! Lives one history: carries the agenda out, strikes and mends, then heals and looks whether everything is as before.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Left, Name};

use super::class::PROBE;
use super::dice::Dice;
use super::drift::{Drift, MOST_DRIFT, MS, Nanos, SEC};
use super::engine::{Engine, Kind, Service};
use super::plan::Plan;
use super::process::Process;
use super::world::{Event, Host, World};
use crate::history::{Entry, History};
use crate::oracle::{Judgement, judge};

/// More than this and something spins.
const MOST_EVENTS: u64 = 3_000_000;
/// A client that is gone is noticed by its steward within one look.
const STEWARD: Nanos = 70 * SEC;

/// A history that was lived.
#[derive(Debug)]
pub struct Run {
    /// What happened, in true time.
    pub history: History,
    /// What the oracle says of it.
    pub judgement: Judgement,
    /// Messages that met a fault, by number.
    pub struck: Vec<u64>,
    /// How much happened.
    pub events: u64,
    /// How long it took, in simulated nanoseconds.
    pub lasted: u64,
}

impl Run {
    /// The same for the same history, to the last byte of its lines.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for record in &self.history.records {
            for byte in serde_json::to_vec(record).unwrap_or_default() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }
}

/// Lives the history of a plan and has it judged.
///
/// # Errors
/// A process cannot be started: the plan is not one that can be lived.
pub fn live(plan: &Plan) -> Result<Run, String> {
    let mut director = Director::new(plan)?;
    director.run()?;
    Ok(director.end())
}

/// One history in progress.
pub(super) struct Director {
    pub(super) plan: Arc<Plan>,
    pub(super) world: Arc<World>,
    pub(super) processes: Vec<Option<Process>>,
    /// When faults end, in true time.
    pub(super) horizon: Nanos,
    began: Nanos,
    events: u64,
    /// The store's clock was stepped back: it does not forget any more, or fences would go back with it.
    pub(super) stepped_back: bool,
    /// The store has forgotten, or is about to: its clock is not stepped back any more.
    pub(super) forgetful: bool,
}

impl Director {
    fn new(plan: &Plan) -> Result<Self, String> {
        let plan = Arc::new(plan.clone());
        let dice = Dice::keyed(plan.seed, [0xd1ce, 0, 0]);
        let drift = || {
            let rate = i64::try_from(dice.below(2 * MOST_DRIFT + 1)).unwrap_or(0);
            Drift {
                offset: 3_600 * SEC + dice.below(3_600 * SEC),
                rate: rate - i64::try_from(MOST_DRIFT).unwrap_or(0),
            }
        };
        let server = drift();
        let hosts = (0..plan.clients).map(|_| Host {
            // Processes that share a SQLite file share the machine and its clock.
            drift: if plan.kind == Kind::Sqlite {
                server
            } else {
                drift()
            },
            behind: 0,
            paused_from: 0,
            paused_until: 0,
            life: 0,
            alive: false,
            cut: None,
        });
        let names = (0..plan.names)
            .map(|n| Name::new(&format!("sim:{n}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|bad| bad.to_string())?;
        let engine = Engine::new(plan.kind, server, plan.mistake);
        let world = World::new(Arc::clone(&plan), names, hosts.collect(), engine);
        let began = world.lock().now;
        let mut director = Self {
            horizon: began + plan.horizon,
            processes: (0..plan.clients).map(|_| None).collect(),
            world,
            began,
            events: 0,
            stepped_back: false,
            forgetful: false,
            plan,
        };
        for slot in 0..director.processes.len() {
            director.open(slot)?;
        }
        let mut state = director.world.lock();
        for (number, strike) in director.plan.strikes.iter().enumerate() {
            state.at(began + strike.at, Event::Strike(number));
        }
        drop(state);
        Ok(director)
    }

    /// Starts a process with its workers.
    pub(super) fn open(&mut self, slot: usize) -> Result<(), String> {
        let mut process = Process::start(&self.world, slot)?;
        for (task, class) in self.plan.classes.iter().enumerate() {
            if let Some(worker) = process.worker(&class.name, task as u64) {
                process.spawn(worker.run());
            }
        }
        if let Some(place) = self.processes.get_mut(slot) {
            *place = Some(process);
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        self.run_until(self.horizon)?;
        self.heal();
        self.drain()?;
        self.calm();
        let longest = self.plan.longest();
        self.run_until(self.now() + longest + longest / 50 + 3 * SEC)?;
        self.probe()?;
        self.close()?;
        self.run_until(self.now() + longest + longest / 50 + 3 * SEC)?;
        self.quiet();
        Ok(())
    }

    /// Carries the agenda out up to a moment.
    pub(super) fn run_until(&mut self, by: Nanos) -> Result<(), String> {
        loop {
            let event = self.world.lock().pop(by);
            let Some(event) = event else { break };
            self.events += 1;
            if self.events > MOST_EVENTS {
                return Err(format!("{MOST_EVENTS} events and no end: something spins"));
            }
            self.happen(event)?;
        }
        let mut state = self.world.lock();
        state.now = state.now.max(by);
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Timer { slot, waker } => {
                waker.wake();
                self.turn(slot);
            }
            Event::Deliver { call, copy } => self.world.lock().deliver(call, copy),
            Event::Answer {
                slot,
                life,
                to,
                reply,
            } => {
                if self.lives(slot, life) {
                    let _ = to.send(reply);
                    self.turn(slot);
                }
            }
            Event::Hint { slot, life, bell } => {
                if let Some(process) = self.process(slot).filter(|_| self.lives(slot, life)) {
                    process.wakers.wake(&bell);
                    process.take_turn();
                }
            }
            Event::Write { write, to } => self.world.lock().arrive(&write, to),
            Event::Wrote {
                slot,
                life,
                to,
                answer,
            } => {
                if self.lives(slot, life) {
                    let _ = to.send(answer);
                    self.turn(slot);
                }
            }
            Event::Strike(number) => self.strike(number),
            Event::Mend(mend) => self.mend(mend)?,
        }
        Ok(())
    }

    pub(super) fn process(&self, slot: usize) -> Option<&Process> {
        self.processes.get(slot)?.as_ref()
    }

    fn turn(&self, slot: usize) {
        if let Some(process) = self.process(slot) {
            process.take_turn();
        }
    }

    fn lives(&self, slot: usize, life: u32) -> bool {
        let state = self.world.lock();
        state
            .hosts
            .get(slot)
            .is_some_and(|host| host.alive && host.life == life)
    }

    pub(super) fn now(&self) -> Nanos {
        self.world.lock().now
    }

    pub(super) fn note(&self, what: Entry) {
        self.note_of("director", what);
    }

    fn note_of(&self, who: &str, what: Entry) {
        let mut state = self.world.lock();
        let now = state.now;
        state.tape.note(now, who, what);
    }

    fn heal(&self) {
        let mut state = self.world.lock();
        state.healed = true;
        state.stopping = true;
        state.deaf = false;
        state.engine.service = Service::Serving;
        for host in &mut state.hosts {
            host.cut = None;
        }
        drop(state);
        self.note(Entry::Fault {
            fault: "every fault ends".to_owned(),
            mends: true,
        });
    }

    /// Until nobody has anything to do any more. What takes too long is written down.
    fn drain(&mut self) -> Result<(), String> {
        let longest = self.plan.longest();
        let step = (longest / 50).clamp(50 * MS, SEC);
        let bound = self.now() + 4 * longest + 60 * SEC;
        loop {
            self.run_until(self.now() + step)?;
            let rests = self.processes.iter().all(|process| {
                process
                    .as_ref()
                    .is_some_and(|process| !process.leaves() && process.rests())
            });
            let flying = self.world.lock().flying;
            let idle = |process: &Process| process.left() == Left::default();
            if rests && flying == 0 && self.processes.iter().flatten().all(idle) {
                return Ok(());
            }
            if self.now() > bound {
                for process in self.processes.iter().flatten() {
                    self.remains(process, process.left());
                    let stuck = u64::from(!process.rests());
                    self.left(&process.who, "tasks that do not end", stuck);
                }
                return Ok(());
            }
        }
    }

    fn remains(&self, process: &Process, left: Left) {
        for (kind, count) in [
            ("holds", left.holds),
            ("releases", left.releasing),
            ("debts", left.debts),
            ("undos", left.undos),
        ] {
            self.left(&process.who, kind, count as u64);
        }
    }

    /// Only what is there is worth a line.
    fn left(&self, who: &str, kind: &str, count: u64) {
        if count > 0 {
            let kind = kind.to_owned();
            self.note_of(who, Entry::Remains { kind, count });
        }
    }

    /// Everyone has done what they had to do: what is in the store now belongs to someone who knows it.
    fn calm(&self) {
        self.note(Entry::Calm);
        // A message that the network repeated long after its answer can grant a lease to nobody; its TTL bounds that.
        if !self.world.lock().network.repeated {
            self.note_leases();
        }
    }

    fn note_leases(&self) {
        let leases = {
            let state = self.world.lock();
            state.engine.leases(state.now)
        };
        for lease in leases {
            self.note(Entry::Lease {
                name: lease.name.to_string(),
                holder: lease.holder,
                fence: lease.fence,
            });
        }
    }

    /// Everyone gets every name; then they queue for one; then they do without being told.
    fn probe(&mut self) -> Result<(), String> {
        let names = self.world.lock().names.clone();
        for name in &names {
            for slot in 0..self.processes.len() {
                self.visit(slot, name, MS);
                self.settle(10 * SEC)?;
            }
        }
        let Some(name) = names.first() else { return Ok(()) };
        // Only a store that queues keeps an order.
        let rounds: &[bool] = if self.plan.queue { &[false, true] } else { &[true] };
        for deaf in rounds {
            if *deaf {
                self.world.lock().deaf = true;
                self.note(Entry::Fault {
                    fault: "waiters are not told".to_owned(),
                    mends: false,
                });
            }
            for slot in 0..self.processes.len() {
                self.visit(slot, name, 700 * MS);
                self.run_until(self.now() + 60 * MS)?;
            }
            self.settle(20 * SEC)?;
        }
        self.world.lock().deaf = false;
        Ok(())
    }

    /// A process takes a name that it must get.
    fn visit(&mut self, slot: usize, name: &Name, lasts: Nanos) {
        let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if let Some(worker) = process.worker(PROBE, 7) {
            process.spawn(worker.probe(name.clone(), lasts));
        }
    }

    /// Until every task has ended, within bounds.
    fn settle(&mut self, within: Nanos) -> Result<(), String> {
        let bound = self.now() + within;
        while self.now() < bound && !self.processes.iter().flatten().all(Process::rests) {
            self.run_until(self.now() + 20 * MS)?;
        }
        Ok(())
    }

    /// Every process ends in order and leaves nothing.
    fn close(&mut self) -> Result<(), String> {
        for process in self.processes.iter_mut().flatten() {
            process.leave(Duration::from_secs(5));
        }
        self.settle(15 * SEC)?;
        for process in self.processes.iter().flatten() {
            self.remains(process, process.has_left().unwrap_or_default());
            let names = process
                .locks
                .as_ref()
                .map_or(0, leasehold_core::Locks::names_here);
            self.left(&process.who, "names in the local gate", names as u64);
            self.left(&process.who, "listeners", process.wakers.len() as u64);
            process.tally();
        }
        let state = self.world.lock();
        let waiters = state.engine.waiters(state.now);
        drop(state);
        self.left("store", "waiters", waiters);
        for process in self.processes.iter_mut().flatten() {
            process.close();
        }
        self.run_until(self.now() + STEWARD)?;
        for process in self.processes.iter().flatten() {
            self.left(&process.who, "tasks of the client", process.alive());
        }
        Ok(())
    }

    fn quiet(&self) {
        self.note(Entry::Quiet);
        self.note_leases();
        let rows = self.world.lock().target.rows();
        for row in rows {
            self.note_of("target", row);
        }
    }

    fn end(self) -> Run {
        let Self {
            world,
            processes,
            began,
            events,
            ..
        } = self;
        drop(processes);
        let mut state = world.lock();
        let history = History {
            records: std::mem::take(&mut state.tape.records),
            damage: Vec::new(),
        };
        let (struck, lasted) = (std::mem::take(&mut state.network.struck), state.now - began);
        drop(state);
        let judgement = judge(&history);
        Run {
            history,
            judgement,
            struck,
            events,
            lasted,
        }
    }
}
