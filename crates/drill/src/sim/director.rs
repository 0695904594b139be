//! Lives one history: carries the agenda out, strikes and mends, then heals and looks whether everything is as before.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::Name;
use tracing::subscriber::NoSubscriber;

use super::books::{self, Books};
use super::daemon::Daemon;
use super::dice::Dice;
use super::drift::{Drift, MOST_DRIFT, Nanos, SEC};
use super::engine::{Engine, Kind};
use super::orphans::Orphans;
use super::panics;
use super::plan::{Plan, Route};
use super::process::Process;
use super::wire::{Packet, Side, Woken};
use super::world::{Event, Host, World};
use crate::history::{Entry, History};
use crate::oracle::{Judgement, judge};

/// More than this and something spins.
const MOST_EVENTS: u64 = 3_000_000;

/// A history that was lived.
#[derive(Debug)]
pub struct Run {
    /// What happened, in true time.
    pub history: History,
    /// What the oracle says of it.
    pub judgement: Judgement,
    /// Messages that met a fault, by number.
    pub struck: Vec<u64>,
    /// How often each kind of fault happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// Leases that stood although their acquire had ended without a hold. Not with a daemon.
    pub orphans: Orphans,
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
    // What a simulated daemon has to say to its operator is nobody's here: thousands of them are killed.
    tracing::subscriber::with_default(NoSubscriber::default(), || {
        panics::watch();
        let mut director = Director::new(plan)?;
        director.run()?;
        Ok(director.end())
    })
}

/// One history in progress.
pub(super) struct Director {
    pub(super) plan: Arc<Plan>,
    pub(super) world: Arc<World>,
    pub(super) processes: Vec<Option<Process>>,
    /// Where clients go through one; none while it is down.
    pub(super) daemon: Option<Daemon>,
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
    pub(super) fn new(plan: &Plan) -> Result<Self, String> {
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
        let daemon = plan.daemon_slot();
        let hosts = (0..plan.clients + usize::from(daemon.is_some())).map(|slot| Host {
            // Processes that share a SQLite file share the machine and its clock; a daemon's clients do not.
            drift: if plan.kind == Kind::Sqlite && daemon.is_none_or(|daemon| daemon == slot) {
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
            cut_until: 0,
            serves: Some(slot) == daemon,
        });
        let names = (0..plan.names)
            .map(|n| Name::new(&format!("sim:{n}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|bad| bad.to_string())?;
        let engine = Engine::new(plan.kind, server, plan.mistake);
        let books = match daemon {
            Some(_) => Books::new()?,
            None => Books::default(),
        };
        let world = World::new(Arc::clone(&plan), names, hosts.collect(), engine, books);
        let began = world.lock().now;
        let mut director = Self {
            horizon: began + plan.horizon,
            processes: (0..plan.clients).map(|_| None).collect(),
            daemon: None,
            world,
            began,
            events: 0,
            stepped_back: false,
            forgetful: false,
            plan,
        };
        for slot in daemon.into_iter().chain(0..director.processes.len()) {
            director.open(slot)?;
        }
        let mut state = director.world.lock();
        for (number, strike) in director.plan.strikes.iter().enumerate() {
            state.at(began + strike.at, Event::Strike(number));
        }
        drop(state);
        Ok(director)
    }

    /// Starts a process with its workers, or the daemon.
    pub(super) fn open(&mut self, slot: usize) -> Result<(), String> {
        if self.serves(slot) {
            self.daemon = Some(Daemon::start(&self.world, slot)?);
            return Ok(());
        }
        let mut process = Process::start(&self.world, slot)?;
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
                    if let Some(client) = process.kept(class, number) {
                        process.spawn(client.run());
                    }
                }
                Route::Plain => {
                    if let Some(client) = process.plain(class, number) {
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

    /// The daemon's host.
    pub(super) fn serves(&self, slot: usize) -> bool {
        self.plan.daemon_slot() == Some(slot)
    }

    fn run(&mut self) -> Result<(), String> {
        // Time is exact here: nothing is seen later than it happens.
        self.note(Entry::Slack { late: 0 });
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
        self.world.lock().pass(by);
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
                let wakers = match &self.daemon {
                    Some(daemon) if self.serves(slot) => Some(&daemon.wakers),
                    _ => self.process(slot).map(|process| &process.wakers),
                };
                if let Some(wakers) = wakers.filter(|_| self.lives(slot, life)) {
                    wakers.wake(&bell);
                    self.turn(slot);
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
            Event::Wire(packet) => self.packet(packet),
            Event::Disk { slot, life } => {
                if self.lives(slot, life) {
                    books::written(&self.world);
                    self.turn(slot);
                }
            }
            Event::Strike(number) => self.strike(number),
            Event::Mend(mend) => self.mend(mend)?,
        }
        Ok(())
    }

    /// Something arrives on the network between clients and daemon.
    fn packet(&self, packet: Packet) {
        let woken = self.world.lock().packet(packet);
        match woken {
            Woken::Nobody => {}
            Woken::Task { slot, waker } => {
                if let Some(waker) = waker {
                    waker.wake();
                    self.turn(slot);
                }
            }
            Woken::Opened {
                slot,
                life,
                to,
                opened,
            } => {
                let conn = opened.as_ref().ok().copied();
                let taken = self.lives(slot, life) && to.send(opened).is_ok();
                if let Some(conn) = conn.filter(|_| !taken) {
                    let waker = self.world.lock().hang_up(conn, Side::Client);
                    drop(waker);
                }
                self.turn(slot);
            }
        }
    }

    pub(super) fn process(&self, slot: usize) -> Option<&Process> {
        self.processes.get(slot)?.as_ref()
    }

    fn turn(&self, slot: usize) {
        match &self.daemon {
            Some(daemon) if self.serves(slot) => daemon.turns.take(),
            _ => {
                if let Some(process) = self.process(slot) {
                    process.take_turn();
                }
            }
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

    pub(super) fn note_of(&self, who: &str, what: Entry) {
        let mut state = self.world.lock();
        let now = state.now;
        state.tape.note(now, who, what);
    }

    fn end(self) -> Run {
        let Self {
            world,
            processes,
            daemon,
            began,
            events,
            ..
        } = self;
        // Whatever is dropped with them may panic too.
        drop((processes, daemon));
        let mut state = world.lock();
        let (now, count) = (state.now, panics::seen());
        if count > 0 {
            let kind = "panics".to_owned();
            state.tape.note(now, "director", Entry::Remains { kind, count });
        }
        let history = History {
            records: std::mem::take(&mut state.tape.records),
            damage: Vec::new(),
        };
        let (mut struck, lasted) = (std::mem::take(&mut state.network.struck), state.now - began);
        struck.append(&mut state.wire.struck);
        let faults = std::mem::take(&mut state.faults);
        let orphans = state.orphaned();
        drop(state);
        let judgement = judge(&history);
        Run {
            history,
            judgement,
            struck,
            faults,
            orphans,
            events,
            lasted,
        }
    }
}
