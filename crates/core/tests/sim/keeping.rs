//! The shell around the real life machine, effect for effect what `keeper.rs` does.

use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::event::{Cleared, Op, What};
use leasehold_core::life::{Effect, Input, Life, Outcome, ReleaseAnswer, State};
use leasehold_core::policy::{Class, OnFailure};
use leasehold_core::rng::Random;
use leasehold_core::store::{Answer, Ask, Busy, Claim, Given, Giving, Renewal, Renewed, TOMBSTONE};
use leasehold_core::word::Token;

use crate::client::in_force;
use crate::clock::Nanos;
use crate::court::{Fact, View};
use crate::engine::{Reply, Verb};
use crate::network::Asker;
use crate::plan::Mistake;
use crate::working::Work;
use crate::world::{Event, World};

/// A machine that wants to be stepped this often at one instant spins.
const MOST_WAKES: u32 = 50;

/// One life as the keeper knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) life: Life,
    pub(crate) name: usize,
    pub(crate) token: Token,
    heal_token: Option<Token>,
    /// What the class says, even if a mistake tells the machine otherwise.
    pub(crate) declared: Arc<Class>,
    /// The work under the hold; none for an undo.
    pub(crate) work: Option<Work>,
    wake: Moment,
    generation: u64,
    woken: (Nanos, u32),
}

impl Entry {
    fn owes(&self, there: &Busy) -> bool {
        match self.life.state() {
            State::Owing { undo: true, .. } => there.holder == self.token.holder(),
            State::Owing { .. } => there.fence.is_some() && there.fence == self.life.fence(),
            _ => false,
        }
    }
}

impl World {
    /// The class as the machine is told it.
    pub(crate) fn told(&self, class: &Arc<Class>) -> Arc<Class> {
        if self.plan.mistake != Mistake::StrikesOnly {
            return Arc::clone(class);
        }
        let mut lax = (**class).clone();
        lax.renew.on_failure = OnFailure::Continue;
        Arc::new(lax)
    }

    /// From here on the keeper keeps it.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn adopt(
        &mut self,
        client: usize,
        id: u64,
        life: Life,
        name: usize,
        token: Token,
        class: Arc<Class>,
        heal_token: Option<Token>,
    ) {
        // What is in force now counts, whatever it was asked under.
        let class = Arc::clone(in_force(&self.clients[client].classes, &class));
        let work = self.begin_work(client, id, &class);
        self.keep(client, id, life, name, token, class, heal_token, Some(work));
    }

    /// An acquire that may have left something behind.
    pub(crate) fn undo(&mut self, client: usize, name: usize, token: Token, class: Arc<Class>) {
        let now = self.clients[client].clock.read(self.now);
        self.undo_from(now, client, name, token, class);
    }

    fn undo_from(&mut self, from: Moment, client: usize, name: usize, token: Token, class: Arc<Class>) {
        self.court.hear(self.now, &Fact::Undoing { token: &token });
        let state = &mut self.clients[client];
        let (id, seed) = (state.next_id(), state.random.bits());
        let life = Life::undo(Arc::clone(&class), seed, from);
        self.keep(client, id, life, name, token, class, None, None);
    }

    #[allow(clippy::too_many_arguments)]
    fn keep(
        &mut self,
        client: usize,
        id: u64,
        life: Life,
        name: usize,
        token: Token,
        declared: Arc<Class>,
        heal_token: Option<Token>,
        work: Option<Work>,
    ) {
        // An undo goes by what was asked, a hold by what is in force.
        let first = match &work {
            Some(_) => Input::PolicyChanged(self.told(&declared)),
            None => Input::Tick,
        };
        let entry = Entry {
            heal_token,
            life,
            name,
            token,
            declared,
            work,
            wake: Moment::FAR,
            generation: 0,
            woken: (0, 0),
        };
        self.clients[client].entries.insert(id, entry);
        self.step(client, id, first);
    }

    pub(crate) fn wake(&mut self, client: usize, id: u64, generation: u64) {
        let Some(entry) = self.clients[client].entries.get_mut(&id) else {
            return;
        };
        if entry.generation != generation {
            return;
        }
        entry.wake = Moment::FAR;
        entry.woken = (
            self.now,
            if entry.woken.0 == self.now {
                entry.woken.1 + 1
            } else {
                0
            },
        );
        if entry.woken.1 > MOST_WAKES {
            let why = format!("a life spins in {:?}", entry.life.state());
            self.court.stuck(self.now, why);
            return;
        }
        self.step(client, id, Input::Tick);
    }

    /// One step of one life, and what follows from it.
    pub(crate) fn step(&mut self, client: usize, id: u64, input: Input) {
        let state = &mut self.clients[client];
        let now = state.clock.read(self.now);
        let Some(entry) = state.entries.get_mut(&id) else {
            return;
        };
        let mut effects = Vec::new();
        entry.life.step(input, now, &mut effects);
        self.witness(client, id, &effects);
        for effect in effects {
            self.carry_out(client, id, effect);
        }
        let state = &mut self.clients[client];
        let Some(entry) = state.entries.get_mut(&id) else {
            return;
        };
        if entry.life.finished() {
            let Some(entry) = state.entries.remove(&id) else {
                return;
            };
            if let Some(token) = &entry.heal_token {
                self.court.hear(self.now, &Fact::Dropped { token });
            }
            if entry.work.is_some() {
                let token = &entry.token;
                self.court.hear(self.now, &Fact::Over { token });
            }
            return;
        }
        let wake = entry.life.wake_at();
        if wake != entry.wake {
            entry.wake = wake;
            entry.generation += 1;
            let generation = entry.generation;
            let at = state.clock.when(wake);
            let hold = id;
            self.at(
                at,
                Event::Wake {
                    client,
                    hold,
                    generation,
                },
            );
        }
    }

    /// What the oracle sees of a life.
    pub(crate) fn view<'a>(&self, client: usize, id: u64, entry: &'a Entry) -> View<'a> {
        let clock = self.clients[client].clock;
        let proven_until = match entry.life.state() {
            State::Proven { deadline } => clock.when(deadline),
            _ => 0,
        };
        View {
            key: (client, id),
            name: entry.name,
            token: &entry.token,
            fence: entry.life.fence(),
            state: entry.life.state(),
            class: &entry.declared,
            proven_until,
            undo: entry.work.is_none(),
            started: entry.life.started(),
            local: clock.read(self.now),
        }
    }

    fn witness(&mut self, client: usize, id: u64, effects: &[Effect]) {
        let Some(entry) = self.clients[client].entries.get(&id) else {
            return;
        };
        let lease = self.engine.record(&self.names[entry.name], self.now);
        let view = self.view(client, id, entry);
        let promised = effects.iter().find_map(|effect| match effect {
            Effect::Finish(Outcome::Debt { until } | Outcome::Kept { until }) => Some(*until),
            _ => None,
        });
        let mark = view.proven_until ^ effects.len() as u64;
        self.history.note(self.now, "step", (client, id), mark, || {
            format!(
                "{:?} proven until {:.6}: {effects:?}",
                view.state,
                view.proven_until as f64 / 1e9
            )
        });
        let fact = Fact::Stepped {
            at: self.now,
            hold: &view,
            effects,
            lease: lease.as_ref(),
            promised: promised.map(|until| self.clients[client].clock.when(until)),
        };
        self.court.hear(self.now, &fact);
    }

    fn carry_out(&mut self, client: usize, id: u64, effect: Effect) {
        let state = &mut self.clients[client];
        let Some(entry) = state.entries.get_mut(&id) else {
            return;
        };
        let class = Arc::clone(entry.life.class());
        let name = self.names[entry.name].clone();
        match effect {
            Effect::Renew => {
                let Some(fence) = entry.life.fence() else { return };
                let renewal = Renewal {
                    name,
                    token: entry.token.clone(),
                    fence,
                    ttl: class.ttl,
                    lock_delay: class.release.lock_delay,
                };
                self.send(client, Asker::Hold(id), Verb::Renew(renewal), class.renew.timeout);
            }
            Effect::Heal => {
                let token = entry
                    .heal_token
                    .get_or_insert_with(|| Token::fresh(&state.holder, &class.name, &state.random))
                    .clone();
                let mut ask = Ask::new(name, token, class.ttl);
                ask.lock_delay = class.release.lock_delay;
                ask.floor = state.floors[entry.name];
                self.send(client, Asker::Hold(id), Verb::Ask(ask), class.acquire.timeout);
            }
            Effect::Release { .. } => {
                let giving = Giving {
                    name,
                    claim: Claim::Owner(entry.token.clone()),
                    tombstone: entry.life.leaves_tombstone().then_some(TOMBSTONE),
                };
                self.send(
                    client,
                    Asker::Hold(id),
                    Verb::Release(giving),
                    class.release.timeout,
                );
            }
            Effect::TakeOver => {
                if let Some(token) = entry.heal_token.take() {
                    entry.token = token;
                }
            }
            Effect::GiveBack => {
                if let Some(token) = entry.heal_token.take() {
                    let name = entry.name;
                    self.undo(client, name, token, class);
                }
            }
            Effect::Forget { from } => {
                let (name, token) = (entry.name, entry.token.clone());
                if self.plan.mistake != Mistake::NoForget {
                    self.undo_from(from, client, name, token, class);
                }
            }
            Effect::Cancel(_) => {
                if let Some(work) = &mut entry.work {
                    work.cancelled = true;
                }
                self.wind_up(client, id);
            }
            Effect::Emit(what) => {
                if let Some(work) = &mut entry.work {
                    work.count(&what, &class);
                }
            }
            Effect::Finish(_) => state.inside[entry.name] = None,
        }
    }

    pub(crate) fn heard(&mut self, client: usize, id: u64, call: usize, reply: Reply) {
        let state = &mut self.clients[client];
        if !matches!(reply, Reply::Failed { .. }) {
            state.breaker.succeeded();
        }
        let mut sent_at = self.calls[call].sent_at;
        if self.plan.mistake == Mistake::DeadlineFromReply {
            sent_at = state.clock.read(self.now);
        }
        let input = match (&self.calls[call].verb, reply) {
            (Verb::Renew(_), Reply::Renewed(Renewed::Extended { was_left })) => {
                Input::Renewed { sent_at, was_left }
            }
            (Verb::Renew(renewal), Reply::Renewed(Renewed::NotOwned)) => {
                let (key, fence) = ((client, id), renewal.fence);
                self.court.hear(self.now, &Fact::Told { key, fence });
                if self.plan.mistake == Mistake::NotOwnedIsAStrike {
                    Input::RenewFailed { unknown: false }
                } else {
                    Input::NotOwned
                }
            }
            (Verb::Renew(_), Reply::Failed { unknown, .. }) => Input::RenewFailed { unknown },
            (Verb::Ask(_), Reply::Asked(Answer::Granted(grant))) => {
                if let Some(name) = state.entries.get(&id).map(|entry| entry.name) {
                    state.saw(name, grant.fence);
                }
                let (fence, ttl) = (grant.fence, grant.ttl);
                Input::Healed { sent_at, fence, ttl }
            }
            (Verb::Ask(_), Reply::Asked(Answer::Busy(busy))) => {
                let name = state.entries.get(&id).map(|entry| entry.name);
                if let (Some(name), Some(fence)) = (name, busy.fence) {
                    state.saw(name, fence);
                }
                let owed = |entry: &Entry| Some(entry.name) == name && entry.owes(&busy);
                if state.entries.values().any(owed) {
                    Input::HealFailed { unknown: false }
                } else {
                    Input::HealBusy
                }
            }
            (Verb::Ask(_), Reply::Asked(Answer::Void)) => {
                if let Some(entry) = state.entries.get_mut(&id) {
                    entry.heal_token = None;
                }
                Input::HealFailed { unknown: false }
            }
            (Verb::Ask(_), Reply::Failed { unknown, .. }) => Input::HealFailed { unknown },
            (Verb::Release(_), Reply::Given(Given::Released)) => {
                Input::ReleaseAnswer(ReleaseAnswer::Released)
            }
            (Verb::Release(_), Reply::Given(Given::NotOwned)) => {
                Input::ReleaseAnswer(ReleaseAnswer::NotOwned)
            }
            (Verb::Release(_), Reply::Failed { unknown, .. }) => {
                let unknown = unknown && self.plan.mistake != Mistake::SecondNotOwnedIsAFault;
                Input::ReleaseAnswer(ReleaseAnswer::Failed { unknown })
            }
            (verb, reply) => unreachable!("{verb:?} is not answered by {reply:?}"),
        };
        self.step(client, id, input);
    }
}

/// An undo that the store has confirmed.
pub(crate) fn confirmed_undo(effects: &[Effect]) -> bool {
    let undone = What::Undone {
        how: Cleared::Released,
    };
    effects
        .iter()
        .any(|effect| *effect == Effect::Emit(undone.clone()))
}

/// A hold that heard *not owned* while renewing.
pub(crate) fn heard_not_owned(what: &What) -> bool {
    matches!(what, What::NotOwned { op: Op::Renew })
}
