//! The event loop: one true time, one queue, everything in an order that the seed decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use leasehold_core::policy::Class;
use leasehold_core::word::{Fence, Name};

use crate::client::Client;
use crate::clock::{DriftingClock, MOST_DRIFT, MS, NEVER, Nanos, SEC};
use crate::court::{Court, Fact};
use crate::dice::Dice;
use crate::engine::Engine;
use crate::history::History;
use crate::network::Call;
use crate::plan::Plan;

/// More events than this and something spins.
const MOST_EVENTS: u64 = 400_000;

/// What is going to happen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A client thinks of acquiring something.
    Start { client: usize },
    /// A message arrives at the store.
    Deliver { call: usize, copy: u32 },
    /// The store's answer arrives at the client.
    Answer { call: usize },
    /// The client's patience with a call ends.
    TimeUp { call: usize },
    /// A waiter's rest is over.
    Rested { client: usize, attempt: u64, rest: u64 },
    /// A waiter is woken.
    Hint { client: usize, attempt: u64 },
    /// A caller drops its acquire.
    Cancel { client: usize, attempt: u64 },
    /// A life is due.
    Wake {
        client: usize,
        hold: u64,
        generation: u64,
    },
    /// A protected step of work.
    Work { client: usize, hold: u64 },
    /// The work is done.
    Done { client: usize, hold: u64 },
    /// A write arrives at the target.
    Write { name: usize, fence: Fence },
    /// Faults may strike.
    Chaos,
    /// A client comes back to life.
    Restart { client: usize },
    /// Faults end.
    Heal,
}

impl Event {
    /// The client in which it happens; a client that stands still sees it when it goes on.
    fn inside(&self, calls: &[Call]) -> Option<usize> {
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
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Nanos,
    pub(crate) dice: Dice,
    pub(crate) names: Vec<Name>,
    pub(crate) engine: Engine,
    pub(crate) clients: Vec<Client>,
    pub(crate) calls: Vec<Call>,
    /// The newest fence the protected target has admitted, by name.
    pub(crate) target: Vec<Option<Fence>>,
    pub(crate) court: Court,
    pub(crate) history: History,
    pub(crate) healing: bool,
    /// The longest that any lease of this history is kept.
    pub(crate) longest: Nanos,
    queue: BinaryHeap<Reverse<(Nanos, u8, u64, usize)>>,
    /// Events by their number; taken out when they happen.
    events: Vec<Option<Event>>,
    happened: u64,
}

impl World {
    pub(crate) fn new(plan: Plan, keep_lines: bool) -> Self {
        let dice = Dice::new(plan.seed);
        let names = (0..plan.names)
            .map(|n| Name::new(&format!("sim:{n}")).unwrap())
            .collect();
        let rate = || i64::try_from(dice.below(2 * MOST_DRIFT as u64 + 1)).unwrap() - MOST_DRIFT;
        let clock = || DriftingClock::new(3_600 * SEC + dice.below(3_600 * SEC), rate());
        let engine = Engine::new(clock(), plan.mistake);
        let clients = (0..plan.clients)
            .map(|n| Client::new(n, clock(), &plan, dice.below(u64::MAX)))
            .collect();
        let mut world = Self {
            now: SEC,
            names,
            engine,
            clients,
            calls: Vec::new(),
            target: vec![None; plan.names],
            court: Court::new(),
            history: History::new(keep_lines),
            healing: false,
            longest: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            happened: 0,
            dice,
            plan,
        };
        for class in world.plan.classes.clone() {
            world.reckon(&class);
        }
        for client in 0..world.plan.clients {
            world.after(world.dice.between(0, 300 * MS), Event::Start { client });
        }
        world.after(world.plan.horizon / 40, Event::Chaos);
        world.after(world.plan.horizon, Event::Heal);
        world
    }

    /// A class is in use from now on.
    pub(crate) fn reckon(&mut self, class: &Arc<Class>) {
        let kept = class.ttl.get() + class.release.lock_delay;
        self.longest = self.longest.max(u64::try_from(kept.as_nanos()).unwrap());
    }

    pub(crate) fn after(&mut self, by: Nanos, event: Event) {
        self.at(self.now.saturating_add(by), event);
    }

    /// Answers that are there are heard before timers that are due, as the real shell's biased select does. Work is
    /// another task: it may run before or after.
    pub(crate) fn at(&mut self, at: Nanos, event: Event) {
        if at == NEVER {
            return;
        }
        let rank = match event {
            Event::Deliver { .. } | Event::Answer { .. } => 1,
            Event::Work { .. } => self.dice.below(2) as u8 * 4,
            Event::TimeUp { .. } | Event::Rested { .. } => 2,
            _ => 3,
        };
        let number = self.events.len();
        self.queue
            .push(Reverse((at.max(self.now), rank, number as u64, number)));
        self.events.push(Some(event));
    }

    /// Runs until nothing is left to happen, or until the invariants have enough.
    pub(crate) fn run(&mut self, to_the_end: bool) {
        while let Some(Reverse((at, _, _, number))) = self.queue.pop() {
            let Some(event) = self.events[number].take() else {
                continue;
            };
            self.now = at;
            self.happened += 1;
            if self.happened > MOST_EVENTS {
                self.court.stuck(at, format!("{MOST_EVENTS} events and no end"));
                return;
            }
            if !to_the_end && !self.court.violations.is_empty() {
                return;
            }
            if let Some(client) = event.inside(&self.calls) {
                let until = self.clients[client].paused_until;
                if until > at {
                    self.at(until, event);
                    continue;
                }
            }
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start { client } => self.think(client),
            Event::Deliver { call, copy } => self.deliver(call, copy),
            Event::Answer { call } => self.answer(call),
            Event::TimeUp { call } => self.time_up(call),
            Event::Rested {
                client,
                attempt,
                rest,
            } => self.rested(client, attempt, rest),
            Event::Hint { client, attempt } => self.hinted(client, attempt),
            Event::Cancel { client, attempt } => self.cancel(client, attempt),
            Event::Wake {
                client,
                hold,
                generation,
            } => self.wake(client, hold, generation),
            Event::Work { client, hold } => self.work(client, hold),
            Event::Done { client, hold } => self.done(client, hold),
            Event::Write { name, fence } => self.write(name, fence),
            Event::Chaos => self.chaos(),
            Event::Restart { client } => self.restart(client),
            Event::Heal => self.heal(),
        }
    }

    /// The whole history: faults, healing, then proof that everything is as if nothing had been.
    pub(crate) fn live(&mut self, to_the_end: bool) {
        self.run(to_the_end);
        if self.over(to_the_end) {
            return;
        }
        self.nothing_left("after healing");
        // Whatever lease is still there belongs to nobody who knows it: it must run out by itself.
        self.now += self.longest + self.longest / 50 + 6 * SEC;
        let (now, engine) = (self.now, &self.engine);
        let leases: Vec<_> = self
            .names
            .iter()
            .filter_map(|name| engine.record(name, now))
            .collect();
        self.court.hear(now, &Fact::Quiet { leases: &leases });
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
                    self.court.stuck(self.now, why);
                }
                if self.over(to_the_end) {
                    return;
                }
            }
        }
        self.nothing_left("at the end");
    }

    fn over(&self, to_the_end: bool) -> bool {
        !to_the_end && !self.court.violations.is_empty()
    }

    /// L5: no hold, waiter, task or debt stays.
    fn nothing_left(&mut self, when: &str) {
        for client in &self.clients {
            if !client.attempts.is_empty() || !client.entries.is_empty() {
                let states: Vec<_> = client.entries.values().map(|entry| entry.life.state()).collect();
                let why = format!(
                    "{when}, client {} still has {} acquires and lives {states:?}",
                    client.number,
                    client.attempts.len()
                );
                self.court.stuck(self.now, why);
                return;
            }
        }
    }

    pub(crate) fn happened(&self) -> u64 {
        self.happened
    }
}
