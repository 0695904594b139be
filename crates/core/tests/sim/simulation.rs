//! The event loop: one true time, one queue, in an order that the seed determines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use leasehold_core::policy::Class;
use leasehold_core::types::{Fence, Name};

use crate::client::SimClient;
use crate::clock::{DriftingClock, MAX_DRIFT_PPM, MS, NEVER, Nanos, SEC};
use crate::history::History;
use crate::judge::{Fact, Judge};
use crate::network::StoreCall;
use crate::plan::SimPlan;
use crate::random::SimRandom;
use crate::store::SimStore;

/// A history with more events than this is in a busy loop.
const MAX_EVENTS: u64 = 400_000;

/// A scheduled event.
#[derive(Debug, Clone)]
pub(crate) enum SimEvent {
    /// A client may start an acquire.
    Start { client: usize },
    /// A message arrives at the store.
    Deliver { call: usize, copy: u32 },
    /// The store's response arrives at the client.
    Answer { call: usize },
    /// The client's timeout of a call ends.
    TimeUp { call: usize },
    /// A waiter's sleep is over.
    Rested { client: usize, attempt: u64, rest: u64 },
    /// A waiter is woken.
    Hint { client: usize, attempt: u64 },
    /// A caller drops its acquire.
    Cancel { client: usize, attempt: u64 },
    /// A hold machine is due.
    Wake { client: usize, hold: u64, generation: u64 },
    /// A protected step of work.
    Work { client: usize, hold: u64 },
    /// The work is done.
    Done { client: usize, hold: u64 },
    /// A write arrives at the target.
    Write { name: usize, fence: Fence },
    /// Faults are drawn.
    Chaos,
    /// A crashed client restarts.
    Restart { client: usize },
    /// All faults end.
    Heal,
}

impl SimEvent {
    /// The client in which it happens; a paused client sees it when it continues.
    fn inside(&self, calls: &[StoreCall]) -> Option<usize> {
        match self {
            Self::Answer { call } | Self::TimeUp { call } => calls.get(*call).map(|call| call.client),
            Self::Start { client }
            | Self::Rested { client, .. }
            | Self::Hint { client, .. }
            | Self::Cancel { client, .. }
            | Self::Wake { client, .. }
            | Self::Work { client, .. }
            | Self::Done { client, .. } => Some(*client),
            _ => None,
        }
    }
}

/// One history in progress.
pub(crate) struct Simulation {
    pub(crate) plan: SimPlan,
    pub(crate) now: Nanos,
    pub(crate) random: SimRandom,
    pub(crate) names: Vec<Name>,
    pub(crate) store: SimStore,
    pub(crate) clients: Vec<SimClient>,
    pub(crate) calls: Vec<StoreCall>,
    /// The newest fence the protected target has accepted, by name.
    pub(crate) target: Vec<Option<Fence>>,
    pub(crate) judge: Judge,
    pub(crate) history: History,
    pub(crate) healing: bool,
    /// The longest store TTL of any lease of this history.
    pub(crate) longest: Nanos,
    queue: BinaryHeap<Reverse<(Nanos, u8, u64, usize)>>,
    /// Events by their number; taken out when they happen.
    events: Vec<Option<SimEvent>>,
    happened: u64,
}

impl Simulation {
    pub(crate) fn new(plan: SimPlan, keep_lines: bool) -> Self {
        let dice = SimRandom::new(plan.seed);
        let names = (0..plan.names).map(|n| Name::new(&format!("sim:{n}")).unwrap()).collect();
        let rate = || i64::try_from(dice.below(2 * MAX_DRIFT_PPM as u64 + 1)).unwrap() - MAX_DRIFT_PPM;
        let clock = || DriftingClock::new(3_600 * SEC + dice.below(3_600 * SEC), rate());
        let engine = SimStore::new(clock(), plan.mistake);
        let clients =
            (0..plan.clients).map(|n| SimClient::new(n, clock(), &plan, dice.below(u64::MAX))).collect();
        let mut world = Self {
            now: SEC,
            names,
            store: engine,
            clients,
            calls: Vec::new(),
            target: vec![None; plan.names],
            judge: Judge::new(),
            history: History::new(keep_lines),
            healing: false,
            longest: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            happened: 0,
            random: dice,
            plan,
        };
        for class in world.plan.classes.clone() {
            world.account_for_class(&class);
        }
        for client in 0..world.plan.clients {
            world.after(world.random.between(0, 300 * MS), SimEvent::Start { client });
        }
        world.after(world.plan.horizon / 40, SimEvent::Chaos);
        world.after(world.plan.horizon, SimEvent::Heal);
        world
    }

    /// Accounts for the TTL of a class that is in use from now on.
    pub(crate) fn account_for_class(&mut self, class: &Arc<Class>) {
        let kept = class.ttl.get() + class.release.lock_delay;
        self.longest = self.longest.max(u64::try_from(kept.as_nanos()).unwrap());
    }

    pub(crate) fn after(&mut self, by: Nanos, event: SimEvent) {
        self.at(self.now.saturating_add(by), event);
    }

    /// Responses are handled before timers that are due, as the real driver's biased select does.
    /// Work is another task: it may run before or after.
    pub(crate) fn at(&mut self, at: Nanos, event: SimEvent) {
        if at == NEVER {
            return;
        }
        let rank = match event {
            SimEvent::Deliver { .. } | SimEvent::Answer { .. } => 1,
            SimEvent::Work { .. } => self.random.below(2) as u8 * 4,
            SimEvent::TimeUp { .. } | SimEvent::Rested { .. } => 2,
            _ => 3,
        };
        let number = self.events.len();
        self.queue.push(Reverse((at.max(self.now), rank, number as u64, number)));
        self.events.push(Some(event));
    }

    /// Runs until no event is left, or until the invariants have found enough.
    pub(crate) fn run(&mut self, to_the_end: bool) {
        while let Some(Reverse((at, _, _, number))) = self.queue.pop() {
            let Some(event) = self.events[number].take() else {
                continue;
            };
            self.now = at;
            self.happened += 1;
            if self.happened > MAX_EVENTS {
                self.judge.record_missing(at, format!("{MAX_EVENTS} events and no end"));
                return;
            }
            if !to_the_end && !self.judge.violations.is_empty() {
                return;
            }
            if let Some(client) = event.inside(&self.calls) {
                let until = self.clients[client].paused_until;
                if until > at {
                    self.at(until, event);
                    continue;
                }
            }
            self.dispatch(event);
        }
    }

    fn dispatch(&mut self, event: SimEvent) {
        match event {
            SimEvent::Start { client } => self.think(client),
            SimEvent::Deliver { call, copy } => self.deliver(call, copy),
            SimEvent::Answer { call } => self.answer(call),
            SimEvent::TimeUp { call } => self.time_up(call),
            SimEvent::Rested { client, attempt, rest } => self.rested(client, attempt, rest),
            SimEvent::Hint { client, attempt } => self.hinted(client, attempt),
            SimEvent::Cancel { client, attempt } => self.cancel(client, attempt),
            SimEvent::Wake { client, hold, generation } => self.wake(client, hold, generation),
            SimEvent::Work { client, hold } => self.work(client, hold),
            SimEvent::Done { client, hold } => self.done(client, hold),
            SimEvent::Write { name, fence } => self.write(name, fence),
            SimEvent::Chaos => self.chaos(),
            SimEvent::Restart { client } => self.restart(client),
            SimEvent::Heal => self.heal(),
        }
    }

    /// Runs the whole history: faults, healing, then the proof that no trace of the faults remains.
    pub(crate) fn live(&mut self, to_the_end: bool) {
        self.run(to_the_end);
        if self.over(to_the_end) {
            return;
        }
        self.check_nothing_left("after healing");
        // A lease that is still there has no owner any more: it must expire by itself.
        self.now += self.longest + self.longest / 50 + 6 * SEC;
        let (now, engine) = (self.now, &self.store);
        let leases: Vec<_> = self.names.iter().filter_map(|name| engine.record(name, now)).collect();
        self.judge.judge_fact(now, &Fact::Quiet { leases: &leases });
        if self.over(to_the_end) {
            return;
        }
        for client in 0..self.clients.len() {
            for name in 0..self.names.len() {
                let held = self.clients[client].held;
                self.probe(client, name);
                self.run(to_the_end);
                if self.clients[client].held != held + 1 {
                    let why =
                        format!("client {client} cannot get name {name} although nothing is wrong any more");
                    self.judge.record_missing(self.now, why);
                }
                if self.over(to_the_end) {
                    return;
                }
            }
        }
        self.check_nothing_left("at the end");
    }

    fn over(&self, to_the_end: bool) -> bool {
        !to_the_end && !self.judge.violations.is_empty()
    }

    /// L5: no hold, waiter, task or debt is left.
    fn check_nothing_left(&mut self, when: &str) {
        for client in &self.clients {
            if !client.attempts.is_empty() || !client.entries.is_empty() {
                let states: Vec<_> = client.entries.values().map(|entry| entry.life.state()).collect();
                let why = format!(
                    "{when}, client {} still has {} acquires and lives {states:?}",
                    client.number,
                    client.attempts.len()
                );
                self.judge.record_missing(self.now, why);
                return;
            }
        }
    }

    pub(crate) fn happened(&self) -> u64 {
        self.happened
    }
}
