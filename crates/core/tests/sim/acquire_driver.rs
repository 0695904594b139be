//! Runs the real acquire driver: polls it after each event, and carries out what it waits for.

use std::sync::Arc;
use std::task::Poll;

use leasehold_core::acquire::AcquireOutcome;
use leasehold_core::clock::Moment;
use leasehold_core::life::HoldMachine;
use leasehold_core::policy::Class;
use leasehold_core::store::{AcquireRequest, Grant, StoreError, TOMBSTONE_TTL};
use leasehold_core::types::Token;

use crate::client::in_force;
use crate::clock::MS;
use crate::driver_port::{DriverPort, PolledDriver};
use crate::judge::{AcquireEnding, Fact};
use crate::network::CallOwner;
use crate::plan::{Mistake, built_in};
use crate::simulation::{SimEvent, Simulation};
use crate::store::{StoreReply, StoreRequest};

/// One acquire in progress.
#[derive(Debug)]
pub(crate) struct SimAcquire {
    pub(crate) id: u64,
    pub(crate) ask: AcquireRequest,
    name: usize,
    class: Arc<Class>,
    port: DriverPort,
    /// `None` once it has ended or was dropped.
    driver: Option<PolledDriver>,
    in_flight: Option<usize>,
    resting: bool,
    rest: u64,
    /// The outcome of at least one request is unknown.
    loose: bool,
    erred: bool,
}

impl Simulation {
    /// Lets a client start an acquire at random, and schedules the next decision.
    pub(crate) fn think(&mut self, client: usize) {
        if self.healing {
            return;
        }
        let pause = self.random.between(0, self.plan.horizon / 8);
        self.after(pause, SimEvent::Start { client });
        let name = self.random.index(self.names.len());
        let class = self.random.index(self.plan.classes.len());
        let state = &self.clients[client];
        if state.alive && state.inside[name].is_none() {
            let class = Arc::clone(&state.classes[class]);
            self.begin(client, name, class);
        }
    }

    /// Starts an acquire when all faults are over.
    pub(crate) fn probe(&mut self, client: usize, name: usize) {
        self.begin(client, name, built_in("approval"));
    }

    fn begin(&mut self, client: usize, name: usize, class: Arc<Class>) {
        let state = &mut self.clients[client];
        let id = state.next_id();
        state.inside[name] = Some(id);
        let now = state.clock.read(self.now);
        let token = Token::fresh(&state.holder, &class.name, &*state.random);
        let ask = AcquireRequest::new(self.names[name].clone(), token, class.ttl)
            .with_lock_delay(class.release.lock_delay)
            .with_floor(state.floors[name]);
        let port = DriverPort::default();
        // The driver reads the time when it is made.
        port.values().now = now;
        let random = Arc::clone(&state.random);
        let driver = PolledDriver::new(&port, random, self.plan.queue, Arc::clone(&class), ask.clone());
        let attempt = SimAcquire {
            id,
            ask,
            name,
            class,
            port,
            driver: Some(driver),
            in_flight: None,
            resting: false,
            rest: 0,
            loose: false,
            erred: false,
        };
        self.history.note(self.now, "begins", (client, id), name as u64, || {
            format!("{} {:?}", self.names[name], attempt.class)
        });
        state.attempts.insert(id, attempt);
        if !self.healing && self.random.chance(self.plan.faults.cancel) {
            let by = self.random.between(0, 200 * MS);
            self.after(by, SimEvent::Cancel { client, attempt: id });
        }
        self.poll(client, id);
    }

    /// Polls the driver once, or drops it, with what all acquires of the client share. Returns the
    /// outcome if the acquire has ended.
    fn with_driver(&mut self, client: usize, id: u64, cancel: bool) -> Option<AcquireOutcome> {
        let state = &mut self.clients[client];
        let attempt = state.attempts.get_mut(&id)?;
        let mut values = attempt.port.values();
        values.now = state.clock.read(self.now);
        values.class = Some(Arc::clone(in_force(&state.classes, &attempt.class)));
        values.breaker = std::mem::take(&mut state.breaker);
        values.floor = state.floors[attempt.name];
        values.sleep_until = None;
        drop(values);
        let ended = match &mut attempt.driver {
            Some(driver) if !cancel => driver.poll(),
            _ => Poll::Pending,
        };
        if cancel || ended.is_ready() {
            attempt.driver = None;
        }
        let mut values = attempt.port.values();
        state.breaker = std::mem::take(&mut values.breaker);
        state.floors[attempt.name] = values.floor;
        attempt.erred |= values.refused;
        match ended {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, client: usize, id: u64) {
        if let Some(outcome) = self.with_driver(client, id, false) {
            return self.end(client, id, outcome);
        }
        let state = &mut self.clients[client];
        let Some(attempt) = state.attempts.get_mut(&id) else {
            return;
        };
        let mut values = attempt.port.values();
        // A call also sets a timer, but the simulated network reports the timeout of a call.
        if let Some((request, within)) = values.request.take() {
            drop(values);
            let verb = StoreRequest::Acquire(request);
            let call = self.send(client, CallOwner::Attempt(id), verb, within);
            if let Some(attempt) = self.clients[client].attempts.get_mut(&id) {
                attempt.in_flight = Some(call);
            }
        } else if let Some(until) = values.sleep_until {
            drop(values);
            attempt.resting = true;
            attempt.rest += 1;
            let rest = attempt.rest;
            let at = state.clock.true_time_of(until);
            let attempt = id;
            self.at(at, SimEvent::Rested { client, attempt, rest });
        }
    }

    pub(crate) fn asked(&mut self, client: usize, id: u64, reply: StoreReply) {
        let Some(attempt) = self.clients[client].attempts.get_mut(&id) else {
            return;
        };
        attempt.in_flight = None;
        attempt.port.values().reply = Some(match reply {
            StoreReply::Acquire(response) => Ok(response),
            StoreReply::Failed { cause, unknown } => {
                attempt.loose |= unknown;
                attempt.erred = true;
                Err(if unknown {
                    StoreError::unknown(cause, "simulated")
                } else {
                    StoreError::not_done(cause, "simulated")
                })
            }
            other => unreachable!("an ask is not answered by {other:?}"),
        });
        self.poll(client, id);
    }

    pub(crate) fn rested(&mut self, client: usize, id: u64, rest: u64) {
        let Some(attempt) = self.clients[client].attempts.get_mut(&id) else {
            return;
        };
        if !attempt.resting || attempt.rest != rest {
            return;
        }
        attempt.resting = false;
        self.poll(client, id);
    }

    pub(crate) fn hinted(&mut self, client: usize, id: u64) {
        let Some(attempt) = self.clients[client].attempts.get_mut(&id) else {
            return;
        };
        attempt.port.wake(&attempt.ask.token);
        let rest = attempt.rest;
        self.rested(client, id, rest);
    }

    pub(crate) fn cancel(&mut self, client: usize, id: u64) {
        self.with_driver(client, id, true);
        let state = &mut self.clients[client];
        let Some(attempt) = state.attempts.remove(&id) else {
            return;
        };
        state.inside[attempt.name] = None;
        self.closed(client, &attempt, AcquireEnding::Cancelled);
    }

    fn end(&mut self, client: usize, id: u64, end: AcquireOutcome) {
        let Some(mut attempt) = self.clients[client].attempts.remove(&id) else {
            return;
        };
        // A response that comes after its grant has expired counts as an error.
        attempt.erred |= end == AcquireOutcome::TooLate;
        match end {
            AcquireOutcome::Held { sent_at, grant } => self.held(client, attempt, sent_at, grant),
            AcquireOutcome::Busy(_) => self.failed(client, &attempt, AcquireEnding::Busy),
            AcquireOutcome::Unavailable { .. } => self.failed(client, &attempt, AcquireEnding::Unavailable),
            AcquireOutcome::FallBack { .. } => self.fell_back(client, attempt),
            AcquireOutcome::TooLate => {
                if attempt.port.values().falls_back {
                    self.fell_back(client, attempt);
                } else {
                    self.failed(client, &attempt, AcquireEnding::Unavailable);
                }
            }
        }
    }

    fn held(&mut self, client: usize, attempt: SimAcquire, sent_at: Moment, grant: Grant) {
        let state = &mut self.clients[client];
        state.saw(attempt.name, grant.fence);
        state.held += 1;
        let now = state.clock.read(self.now);
        let sent_at = if self.plan.mistake == Mistake::DeadlineFromReply { now } else { sent_at };
        let (seed, class) = (state.random.bits(), Arc::clone(&attempt.class));
        let told = self.told(&class);
        let mut life = HoldMachine::granted(told, seed, sent_at, grant, now);
        if attempt.port.values().maybe_granted {
            life = life.with_late_until(now + TOMBSTONE_TTL);
        }
        self.tell(client, &attempt, AcquireEnding::Held, false);
        self.adopt(client, attempt.id, life, attempt.name, attempt.ask.token, class, None);
    }

    fn fell_back(&mut self, client: usize, attempt: SimAcquire) {
        // The hold takes over what the request may have left: healing goes on with the same token.
        let asked = attempt.port.values().needs_undo;
        self.tell(client, &attempt, AcquireEnding::Local, asked);
        let state = &mut self.clients[client];
        let now = state.clock.read(self.now);
        let (seed, class) = (state.random.bits(), Arc::clone(&attempt.class));
        let life = HoldMachine::local_only(self.told(&class), seed, asked, now);
        let heal_token = asked.then(|| attempt.ask.token.clone());
        self.adopt(client, attempt.id, life, attempt.name, attempt.ask.token, class, heal_token);
    }

    fn failed(&mut self, client: usize, attempt: &SimAcquire, how: AcquireEnding) {
        self.clients[client].inside[attempt.name] = None;
        self.closed(client, attempt, how);
    }

    /// The acquire ended without a lease: undoes what it may have left in the store.
    fn closed(&mut self, client: usize, attempt: &SimAcquire, how: AcquireEnding) {
        if let Some(call) = attempt.in_flight {
            self.calls[call].settled = true;
        }
        let owed = attempt.port.values().needs_undo;
        let undo = owed && self.plan.mistake != Mistake::NoUndo;
        self.tell(client, attempt, how, undo);
        if undo {
            let (token, class) = (attempt.ask.token.clone(), Arc::clone(&attempt.class));
            self.undo(client, attempt.name, token, class);
        }
    }

    fn tell(&mut self, client: usize, attempt: &SimAcquire, how: AcquireEnding, undo: bool) {
        let lease = self.store.record(attempt.ask.names.first(), self.now);
        let class = in_force(&self.clients[client].classes, &attempt.class);
        self.history
            .note(self.now, "ended", (client, attempt.id), how as u64, || format!("{how:?}, undo {undo}"));
        let fact = Fact::Ended {
            key: (client, attempt.id),
            token: &attempt.ask.token,
            class,
            how,
            loose: attempt.loose || attempt.in_flight.is_some(),
            erred: attempt.erred,
            undo,
            lease: lease.as_ref(),
        };
        self.judge.judge_fact(self.now, &fact);
    }
}
