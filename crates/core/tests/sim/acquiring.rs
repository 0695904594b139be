//! The shell around the real acquire machine, step for step what `acquire/shell.rs` does.

use std::sync::Arc;

use leasehold_core::acquire::{Acquiring, End, Next};
use leasehold_core::breaker::{Admission, Breaker};
use leasehold_core::clock::Moment;
use leasehold_core::life::Life;
use leasehold_core::policy::Class;
use leasehold_core::rng::Random;
use leasehold_core::store::{Answer, Ask, Busy, Failure, Grant, TOMBSTONE};
use leasehold_core::word::Token;

use crate::client::in_force;
use crate::clock::MS;
use crate::court::{Ending, Fact};
use crate::engine::{Reply, Verb};
use crate::network::Asker;
use crate::plan::{Mistake, built_in};
use crate::world::{Event, World};

/// One acquire in progress.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) id: u64,
    pub(crate) ask: Ask,
    name: usize,
    class: Arc<Class>,
    acquiring: Acquiring,
    in_flight: Option<usize>,
    probing: bool,
    resting: bool,
    /// A hint came while nobody rested: listeners remember it.
    hinted: bool,
    rest: u64,
    /// An ask was never definitely answered.
    loose: bool,
    erred: bool,
}

impl Attempt {
    /// What the breaker learns from an ask that failed.
    fn count(&mut self, breaker: &mut Breaker, now: Moment, failure: &Failure, next: &Next) {
        let probe = std::mem::take(&mut self.probing);
        let asks_again = failure.unknown && !matches!(next, Next::End(_));
        if !failure.transient() {
            if probe {
                breaker.abandoned();
            }
        } else if asks_again {
            self.probing = probe || breaker.doubted(now);
        } else {
            breaker.failed(now, probe);
        }
    }
}

impl World {
    /// A client may acquire something, and thinks again later.
    pub(crate) fn think(&mut self, client: usize) {
        if self.healing {
            return;
        }
        let pause = self.dice.between(0, self.plan.horizon / 8);
        self.after(pause, Event::Start { client });
        let name = self.dice.index(self.names.len());
        let class = self.dice.index(self.plan.classes.len());
        let state = &self.clients[client];
        if state.alive && state.inside[name].is_none() {
            let class = Arc::clone(&state.classes[class]);
            self.begin(client, name, class);
        }
    }

    /// An acquire when nothing is wrong any more.
    pub(crate) fn probe(&mut self, client: usize, name: usize) {
        self.begin(client, name, built_in("approval"));
    }

    fn begin(&mut self, client: usize, name: usize, class: Arc<Class>) {
        let state = &mut self.clients[client];
        let id = state.next_id();
        state.inside[name] = Some(id);
        let now = state.clock.read(self.now);
        let token = Token::fresh(&state.holder, &class.name, &state.random);
        let ask = Ask {
            lock_delay: class.release.lock_delay,
            floor: state.floors[name],
            ..Ask::new(self.names[name].clone(), token, class.ttl)
        };
        let mut acquiring = Acquiring::new(Arc::clone(&class), class.acquire.wait, self.plan.queue, now);
        let next = acquiring.ask(now);
        let attempt = Attempt {
            id,
            ask,
            name,
            class,
            acquiring,
            in_flight: None,
            probing: false,
            resting: false,
            hinted: false,
            rest: 0,
            loose: false,
            erred: false,
        };
        self.history
            .note(self.now, "begins", (client, id), name as u64, || {
                format!("{} {:?}", self.names[name], attempt.class)
            });
        state.attempts.insert(id, attempt);
        if !self.healing && self.dice.chance(self.plan.faults.cancel) {
            let by = self.dice.between(0, 200 * MS);
            self.after(by, Event::Cancel { client, attempt: id });
        }
        self.drive(client, id, next);
    }

    fn drive(&mut self, client: usize, id: u64, mut next: Next) {
        loop {
            let state = &mut self.clients[client];
            let now = state.clock.read(self.now);
            let Some(attempt) = state.attempts.get_mut(&id) else {
                return;
            };
            match next {
                Next::Ask { within, queue } => {
                    let admission = if attempt.probing {
                        Admission::Probe
                    } else {
                        state.breaker.admit(now)
                    };
                    match admission {
                        Admission::Refuse { .. } => {
                            attempt.erred = true;
                            let class = in_force(&state.classes, &attempt.class);
                            attempt.acquiring.policy_changed(class);
                            next = attempt.acquiring.refused("the breaker is open".to_owned(), now);
                            continue;
                        }
                        Admission::Probe => attempt.probing = true,
                        Admission::Pass => {}
                    }
                    attempt.ask.queue = queue;
                    let verb = Verb::Ask(attempt.ask.clone());
                    let call = self.send(client, Asker::Attempt(id), verb, within);
                    if let Some(attempt) = self.clients[client].attempts.get_mut(&id) {
                        attempt.in_flight = Some(call);
                    }
                    return;
                }
                Next::Rest { until } => {
                    if std::mem::take(&mut attempt.hinted) {
                        next = attempt.acquiring.rested(now);
                        continue;
                    }
                    attempt.resting = true;
                    attempt.rest += 1;
                    let rest = attempt.rest;
                    let at = state.clock.when(until);
                    let attempt = id;
                    self.at(
                        at,
                        Event::Rested {
                            client,
                            attempt,
                            rest,
                        },
                    );
                    return;
                }
                Next::End(end) => return self.end(client, id, end),
            }
        }
    }

    pub(crate) fn asked(&mut self, client: usize, id: u64, call: usize, reply: Reply) {
        let state = &mut self.clients[client];
        let now = state.clock.read(self.now);
        let Some(attempt) = state.attempts.get_mut(&id) else {
            return;
        };
        attempt.in_flight = None;
        let class = in_force(&state.classes, &attempt.class);
        attempt.acquiring.policy_changed(class);
        let mut sent_at = self.calls[call].sent_at;
        if self.plan.mistake == Mistake::DeadlineFromReply {
            sent_at = now;
        }
        let random = state.random.bits();
        let next = match reply {
            Reply::Asked(answer) => {
                attempt.probing = false;
                state.breaker.succeeded();
                if let Answer::Busy(Busy {
                    fence: Some(fence), ..
                }) = &answer
                {
                    let floor = &mut state.floors[attempt.name];
                    *floor = (*floor).max(Some(*fence));
                    attempt.ask.floor = *floor;
                }
                attempt.acquiring.answered(answer, sent_at, now, random)
            }
            Reply::Failed { cause, unknown } => {
                attempt.loose |= unknown;
                attempt.erred = true;
                let failure = if unknown {
                    Failure::unknown(cause, "simulated")
                } else {
                    Failure::not_done(cause, "simulated")
                };
                let next = attempt.acquiring.failed(&failure, sent_at, now, random);
                attempt.count(&mut state.breaker, now, &failure, &next);
                next
            }
            other => unreachable!("an ask is not answered by {other:?}"),
        };
        self.drive(client, id, next);
    }

    pub(crate) fn rested(&mut self, client: usize, id: u64, rest: u64) {
        let state = &mut self.clients[client];
        let now = state.clock.read(self.now);
        let Some(attempt) = state.attempts.get_mut(&id) else {
            return;
        };
        if !attempt.resting || attempt.rest != rest {
            return;
        }
        attempt.resting = false;
        let next = attempt.acquiring.rested(now);
        self.drive(client, id, next);
    }

    pub(crate) fn hinted(&mut self, client: usize, id: u64) {
        let Some(attempt) = self.clients[client].attempts.get_mut(&id) else {
            return;
        };
        if attempt.resting {
            let rest = attempt.rest;
            self.rested(client, id, rest);
        } else {
            attempt.hinted = true;
        }
    }

    pub(crate) fn cancel(&mut self, client: usize, id: u64) {
        let state = &mut self.clients[client];
        let Some(attempt) = state.attempts.remove(&id) else {
            return;
        };
        if attempt.probing {
            state.breaker.abandoned();
        }
        state.inside[attempt.name] = None;
        self.closed(client, &attempt, Ending::Cancelled);
    }

    fn end(&mut self, client: usize, id: u64, end: End) {
        let Some(mut attempt) = self.clients[client].attempts.remove(&id) else {
            return;
        };
        if attempt.probing {
            self.clients[client].breaker.abandoned();
        }
        // An answer that comes after its grant is over is an error of time.
        attempt.erred |= end == End::TooLate;
        match end {
            End::Held { sent_at, grant } => self.held(client, attempt, sent_at, grant),
            End::Busy(_) => self.failed(client, &attempt, Ending::Busy),
            End::Unavailable { .. } => self.failed(client, &attempt, Ending::Unavailable),
            End::FallBack { .. } => self.fell_back(client, attempt),
            End::TooLate => {
                if attempt.acquiring.falls_back() {
                    self.fell_back(client, attempt);
                } else {
                    self.failed(client, &attempt, Ending::Unavailable);
                }
            }
        }
    }

    fn held(&mut self, client: usize, attempt: Attempt, sent_at: Moment, grant: Grant) {
        let state = &mut self.clients[client];
        state.saw(attempt.name, grant.fence);
        state.held += 1;
        let now = state.clock.read(self.now);
        let (seed, class) = (state.random.bits(), Arc::clone(&attempt.class));
        let told = self.told(&class);
        let mut life = Life::granted(told, seed, sent_at, grant, now);
        if attempt.acquiring.ambiguous() {
            life = life.late_until(now + TOMBSTONE);
        }
        self.tell(client, &attempt, Ending::Held, false);
        self.adopt(
            client,
            attempt.id,
            life,
            attempt.name,
            attempt.ask.token,
            class,
            None,
        );
    }

    fn fell_back(&mut self, client: usize, attempt: Attempt) {
        // What it may have left behind is the hold's from now on: healing goes on with the same token.
        let asked = attempt.acquiring.owes_undo();
        self.tell(client, &attempt, Ending::Local, asked);
        let state = &mut self.clients[client];
        let now = state.clock.read(self.now);
        let (seed, class) = (state.random.bits(), Arc::clone(&attempt.class));
        let life = Life::local_only(self.told(&class), seed, asked, now);
        let heal_token = asked.then(|| attempt.ask.token.clone());
        self.adopt(
            client,
            attempt.id,
            life,
            attempt.name,
            attempt.ask.token,
            class,
            heal_token,
        );
    }

    fn failed(&mut self, client: usize, attempt: &Attempt, how: Ending) {
        self.clients[client].inside[attempt.name] = None;
        self.closed(client, attempt, how);
    }

    /// It did not end in a lease: takes back what may have been left in the store.
    fn closed(&mut self, client: usize, attempt: &Attempt, how: Ending) {
        if let Some(call) = attempt.in_flight {
            self.calls[call].settled = true;
        }
        let owed = attempt.in_flight.is_some() || attempt.acquiring.owes_undo();
        let undo = owed && self.plan.mistake != Mistake::NoUndo;
        self.tell(client, attempt, how, undo);
        if undo {
            let (token, class) = (attempt.ask.token.clone(), Arc::clone(&attempt.class));
            self.undo(client, attempt.name, token, class);
        }
    }

    fn tell(&mut self, client: usize, attempt: &Attempt, how: Ending, undo: bool) {
        let lease = self.engine.record(&attempt.ask.name, self.now);
        let class = in_force(&self.clients[client].classes, &attempt.class);
        self.history
            .note(self.now, "ended", (client, attempt.id), how as u64, || {
                format!("{how:?}, undo {undo}")
            });
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
        self.court.hear(self.now, &fact);
    }
}
