//! Drives the real hold machine, effect for effect as `keeper.rs` does.

use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::event::{DebtResolution, EventKind, LeaseOp};
use leasehold_core::life::{Effect, HoldMachine, HoldState, Input, ReleaseOutcome, ReleaseResult};
use leasehold_core::policy::{Class, OnFailure};
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
    TOMBSTONE_TTL,
};
use leasehold_core::types::Token;

use crate::client::in_force;
use crate::clock::Nanos;
use crate::judge::{Fact, HoldSnapshot};
use crate::network::CallOwner;
use crate::plan::Mistake;
use crate::simulation::{SimEvent, Simulation};
use crate::store::{StoreReply, StoreRequest};
use crate::work::Work;

/// A machine that wants more steps than this at one instant is in a busy loop.
const MAX_WAKES_PER_INSTANT: u32 = 50;

/// One hold machine as the keeper knows it.
#[derive(Debug)]
pub(crate) struct SimHold {
    pub(crate) life: HoldMachine,
    pub(crate) name: usize,
    pub(crate) token: Token,
    heal_token: Option<Token>,
    /// The class as declared, even if a mistake gives the machine another one.
    pub(crate) declared: Arc<Class>,
    /// The work under the hold; none for an undo.
    pub(crate) work: Option<Work>,
    wake: Moment,
    generation: u64,
    woken: (Nanos, u32),
}

impl SimHold {
    fn owes(&self, there: &BusyLease) -> bool {
        match self.life.state() {
            HoldState::Debt { undo: true, .. } => there.holder == self.token.holder(),
            HoldState::Debt { .. } => there.fence.is_some() && there.fence == self.life.fence(),
            _ => false,
        }
    }
}

impl Simulation {
    /// The class that is given to the machine.
    pub(crate) fn told(&self, class: &Arc<Class>) -> Arc<Class> {
        if self.plan.mistake != Mistake::FailuresOnly {
            return Arc::clone(class);
        }
        let mut lax = (**class).clone();
        lax.renew.on_failure = OnFailure::Continue;
        Arc::new(lax)
    }

    /// Hands a hold over to the keeper.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn adopt(
        &mut self,
        client: usize,
        id: u64,
        life: HoldMachine,
        name: usize,
        token: Token,
        class: Arc<Class>,
        heal_token: Option<Token>,
    ) {
        // The class in force now counts, whatever class the acquire used.
        let class = Arc::clone(in_force(&self.clients[client].classes, &class));
        let work = self.begin_work(client, id, &class);
        self.keep(client, id, life, name, token, class, heal_token, Some(work));
    }

    /// Undoes an acquire that may have left a lease.
    pub(crate) fn undo(&mut self, client: usize, name: usize, token: Token, class: Arc<Class>) {
        let now = self.clients[client].clock.read(self.now);
        self.undo_from(now, client, name, token, class);
    }

    fn undo_from(&mut self, from: Moment, client: usize, name: usize, token: Token, class: Arc<Class>) {
        self.judge.judge_fact(self.now, &Fact::Undoing { token: &token });
        let state = &mut self.clients[client];
        let (id, seed) = (state.next_id(), state.random.bits());
        let life = HoldMachine::undo(Arc::clone(&class), seed, from);
        self.keep(client, id, life, name, token, class, None, None);
    }

    #[allow(clippy::too_many_arguments)]
    fn keep(
        &mut self,
        client: usize,
        id: u64,
        life: HoldMachine,
        name: usize,
        token: Token,
        declared: Arc<Class>,
        heal_token: Option<Token>,
        work: Option<Work>,
    ) {
        // An undo uses the class of the acquire, a hold the class in force.
        let first = match &work {
            Some(_) => Input::PolicyChanged(self.told(&declared)),
            None => Input::Tick,
        };
        let entry = SimHold {
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
        entry.woken = (self.now, if entry.woken.0 == self.now { entry.woken.1 + 1 } else { 0 });
        if entry.woken.1 > MAX_WAKES_PER_INSTANT {
            let why = format!("a life spins in {:?}", entry.life.state());
            self.judge.record_missing(self.now, why);
            return;
        }
        self.step(client, id, Input::Tick);
    }

    /// Steps one hold machine and executes the effects.
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
        if entry.life.is_finished() {
            let Some(entry) = state.entries.remove(&id) else {
                return;
            };
            if let Some(token) = &entry.heal_token {
                self.judge.judge_fact(self.now, &Fact::Dropped { token });
            }
            if entry.work.is_some() {
                let token = &entry.token;
                self.judge.judge_fact(self.now, &Fact::Over { token });
            }
            return;
        }
        let wake = entry.life.wake_at();
        if wake != entry.wake {
            entry.wake = wake;
            entry.generation += 1;
            let generation = entry.generation;
            let at = state.clock.true_time_of(wake);
            let hold = id;
            self.at(at, SimEvent::Wake { client, hold, generation });
        }
    }

    /// The oracle's view of a hold machine.
    pub(crate) fn view<'a>(&self, client: usize, id: u64, entry: &'a SimHold) -> HoldSnapshot<'a> {
        let clock = self.clients[client].clock;
        let proven_until = match entry.life.state() {
            HoldState::Proven { deadline } => clock.true_time_of(deadline),
            _ => 0,
        };
        HoldSnapshot {
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
        let lease = self.store.record(&self.names[entry.name], self.now);
        let view = self.view(client, id, entry);
        let promised = effects.iter().find_map(|effect| match effect {
            Effect::Finish(ReleaseOutcome::Debt { until } | ReleaseOutcome::Kept { until }) => Some(*until),
            _ => None,
        });
        let mark = view.proven_until ^ effects.len() as u64;
        self.history.note(self.now, "step", (client, id), mark, || {
            format!("{:?} proven until {:.6}: {effects:?}", view.state, view.proven_until as f64 / 1e9)
        });
        let fact = Fact::Stepped {
            at: self.now,
            hold: &view,
            effects,
            lease: lease.as_ref(),
            promised: promised.map(|until| self.clients[client].clock.true_time_of(until)),
        };
        self.judge.judge_fact(self.now, &fact);
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
                let renewal = RenewRequest::new(name, entry.token.clone(), fence, class.ttl)
                    .with_lock_delay(class.release.lock_delay);
                self.send(client, CallOwner::Hold(id), StoreRequest::Renew(renewal), class.renew.timeout);
            }
            Effect::Heal => {
                let token = entry
                    .heal_token
                    .get_or_insert_with(|| Token::fresh(&state.holder, &class.name, &*state.random))
                    .clone();
                let mut ask = AcquireRequest::new(name, token, class.ttl);
                ask.lock_delay = class.release.lock_delay;
                ask.floor = state.floors[entry.name];
                self.send(client, CallOwner::Hold(id), StoreRequest::Acquire(ask), class.acquire.timeout);
            }
            Effect::Release { .. } => {
                let giving = ReleaseRequest::by_owner(name, entry.token.clone())
                    .with_tombstone(entry.life.leaves_tombstone().then_some(TOMBSTONE_TTL));
                self.send(client, CallOwner::Hold(id), StoreRequest::Release(giving), class.release.timeout);
            }
            Effect::AdoptHealToken => {
                if let Some(token) = entry.heal_token.take() {
                    entry.token = token;
                }
            }
            Effect::UndoHeal => {
                if let Some(token) = entry.heal_token.take() {
                    let name = entry.name;
                    self.undo(client, name, token, class);
                }
            }
            Effect::UndoLate { from } => {
                let (name, token) = (entry.name, entry.token.clone());
                if self.plan.mistake != Mistake::NoLateUndo {
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

    pub(crate) fn heard(&mut self, client: usize, id: u64, call: usize, reply: StoreReply) {
        let state = &mut self.clients[client];
        if !matches!(reply, StoreReply::Failed { .. }) {
            state.breaker.record_success();
        }
        let mut sent_at = self.calls[call].sent_at;
        if self.plan.mistake == Mistake::DeadlineFromReply {
            sent_at = state.clock.read(self.now);
        }
        let input = match (&self.calls[call].verb, reply) {
            (
                StoreRequest::Renew(_),
                StoreReply::Renew(RenewResponse::Extended { remaining_before: was_left, .. }),
            ) => Input::Renewed { sent_at, remaining_before: was_left },
            (StoreRequest::Renew(renewal), StoreReply::Renew(RenewResponse::NotOwned)) => {
                let (key, fence) = ((client, id), renewal.fence);
                self.judge.judge_fact(self.now, &Fact::NotOwnedReceived { key, fence });
                if self.plan.mistake == Mistake::NotOwnedIsAFailure {
                    Input::RenewFailed { unknown: false }
                } else {
                    Input::NotOwned
                }
            }
            (StoreRequest::Renew(_), StoreReply::Failed { unknown, .. }) => Input::RenewFailed { unknown },
            (StoreRequest::Acquire(_), StoreReply::Acquire(AcquireResponse::Granted(grant))) => {
                if let Some(name) = state.entries.get(&id).map(|entry| entry.name) {
                    state.saw(name, grant.fence);
                }
                let (fence, ttl) = (grant.fence, grant.ttl);
                Input::Healed { sent_at, fence, ttl }
            }
            (StoreRequest::Acquire(_), StoreReply::Acquire(AcquireResponse::Busy(busy))) => {
                let name = state.entries.get(&id).map(|entry| entry.name);
                if let (Some(name), Some(fence)) = (name, busy.fence) {
                    state.saw(name, fence);
                }
                let owed = |entry: &SimHold| Some(entry.name) == name && entry.owes(&busy);
                if state.entries.values().any(owed) {
                    Input::HealFailed { unknown: false }
                } else {
                    Input::HealBusy
                }
            }
            (StoreRequest::Acquire(_), StoreReply::Acquire(AcquireResponse::Void)) => {
                if let Some(entry) = state.entries.get_mut(&id) {
                    entry.heal_token = None;
                }
                Input::HealFailed { unknown: false }
            }
            (StoreRequest::Acquire(_), StoreReply::Failed { unknown, .. }) => Input::HealFailed { unknown },
            (StoreRequest::Release(_), StoreReply::Release(ReleaseResponse::Released)) => {
                Input::ReleaseAnswered(ReleaseResult::Released)
            }
            (StoreRequest::Release(_), StoreReply::Release(ReleaseResponse::NotOwned)) => {
                Input::ReleaseAnswered(ReleaseResult::NotOwned)
            }
            (StoreRequest::Release(_), StoreReply::Failed { unknown, .. }) => {
                let unknown = unknown && self.plan.mistake != Mistake::SecondNotOwnedIsAnError;
                Input::ReleaseAnswered(ReleaseResult::Failed { unknown })
            }
            (verb, reply) => unreachable!("{verb:?} is not answered by {reply:?}"),
        };
        self.step(client, id, input);
    }
}

/// Whether the store has confirmed an undo.
pub(crate) fn confirmed_undo(effects: &[Effect]) -> bool {
    let undone = EventKind::Undone { how: DebtResolution::Released };
    effects.iter().any(|effect| *effect == Effect::Emit(undone.clone()))
}

/// Whether a hold got *not owned* while renewing.
pub(crate) fn heard_not_owned(what: &EventKind) -> bool {
    matches!(what, EventKind::NotOwned { op: LeaseOp::Renew })
}
