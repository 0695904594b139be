//! The keeper task of a client: it drives the state machines of all holds.
//!
//! The keeper only executes: it sends batched renewals, heals and releases, and keeps the timers.
//! The machine in `life/` makes every decision. One task owns all machines, so no two steps of one
//! can race. Store calls run in their own tasks and report back through a channel.

mod command;
mod completion;
mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub use command::PendingWork;
pub(crate) use command::{KeeperCommand, KeeperHandle};
pub(crate) use entry::HoldEntry;

use crate::clock::Moment;
use crate::context::Context;
use crate::event::{EventKind, EventSubject, Loss};
use crate::life::{Effect, HoldMachine, HoldState, Input};
use crate::policy::{Class, PolicyBook};
use crate::store::{AcquireRequest, ReleaseRequest, RenewRequest, TOMBSTONE_TTL};
use crate::store_call::{self, CallCompletion};
use crate::types::{Name, Token};

// Bounds the commands per turn: timers must not wait behind a flood of commands.
const MAX_COMMANDS_PER_TURN: usize = 128;

#[derive(Debug)]
pub(crate) struct Keeper {
    context: Context,
    policies: Arc<PolicyBook>,
    commands: mpsc::UnboundedReceiver<KeeperCommand>,
    completions: mpsc::UnboundedReceiver<CallCompletion>,
    completion_sender: mpsc::UnboundedSender<CallCompletion>,
    // Ordered by id: a step that concerns all holds runs in the same order in every replay.
    entries: BTreeMap<u64, HoldEntry>,
    timers: BTreeSet<(Moment, u64)>,
    // Renewals due in this turn, grouped by timeout: one store call has one timeout.
    due_renewals: BTreeMap<Duration, Vec<(u64, RenewRequest)>>,
    // After a shutdown, a hold whose grant was in flight on another thread ends as soon as it is
    // adopted.
    shut_down: bool,
}

impl Keeper {
    /// Starts the task on the current runtime. It ends when every handle is dropped and no entry is
    /// left.
    pub(crate) fn spawn(context: Context, book: Arc<PolicyBook>) -> KeeperHandle {
        let (sender, commands) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let handle = KeeperHandle { sender, context: context.clone() };
        let keeper = Self {
            context,
            policies: book,
            commands,
            completions: answers,
            completion_sender: answer,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            due_renewals: BTreeMap::new(),
            shut_down: false,
        };
        tokio::spawn(keeper.run());
        handle
    }

    async fn run(mut self) {
        let mut open = true;
        while open || !self.entries.is_empty() {
            let next = self.timers.first().map_or(Moment::FAR, |(at, _)| *at);
            let sleep = self.context.clock.sleep_until(next);
            tokio::select! {
                // Fixed order: a random one would break replay from a seed.
                biased;
                Some(answered) = self.completions.recv() => self.on_completion(answered),
                command = self.commands.recv(), if open => match command {
                    Some(command) => self.on_command(command),
                    None => open = false,
                },
                () = sleep, if next < Moment::FAR => {}
            }
            // Drain what arrived meanwhile, so that its renewals join the same batch.
            while let Ok(answered) = self.completions.try_recv() {
                self.on_completion(answered);
            }
            for _ in 0..MAX_COMMANDS_PER_TURN {
                let Ok(command) = self.commands.try_recv() else {
                    break;
                };
                self.on_command(command);
            }
            self.step_due_holds();
            self.send_renewals();
        }
    }

    fn on_command(&mut self, command: KeeperCommand) {
        match command {
            KeeperCommand::Adopt(entry) => {
                let id = entry.id;
                self.entries.insert(id, *entry);
                // The acquire may have waited for long, so the policy may have changed since it
                // began.
                self.apply_current_policy(id);
                if self.shut_down {
                    self.step(id, Input::ForceEnd(Loss::Shutdown));
                }
            }
            KeeperCommand::Release { id, answer } => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    match (answer, entry.outcome) {
                        // Already finished: a second release call gets the same outcome.
                        (Some(answer), Some(outcome)) => {
                            let _ = answer.send(outcome);
                        }
                        (Some(answer), None) => entry.release_waiters.push(answer),
                        (None, _) => {}
                    }
                }
                self.step(id, Input::Release);
            }
            KeeperCommand::Undo { id, name, token, class } => {
                let now = self.context.clock.now();
                self.start_undo(id, name, token, class, now);
            }
            KeeperCommand::PoliciesChanged => {
                let ids: Vec<_> = self.entries.keys().copied().collect();
                ids.into_iter().for_each(|id| self.apply_current_policy(id));
            }
            KeeperCommand::EndAll => {
                self.shut_down = true;
                let ids: Vec<_> = self.entries.keys().copied().collect();
                ids.into_iter().for_each(|id| self.step(id, Input::ForceEnd(Loss::Shutdown)));
            }
            KeeperCommand::Count(answer) => {
                let _ = answer.send(self.count_pending());
            }
        }
    }

    /// Applies the class in force. A hold keeps its old class if the class no longer exists or no
    /// longer fits the request's options.
    fn apply_current_policy(&mut self, id: u64) {
        let now = self.context.clock.now();
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        let name = &entry.life.class().name;
        let class = self.policies.class_for_request(name, &entry.options, now);
        self.step(id, class.map_or(Input::Tick, Input::PolicyChanged));
    }

    fn start_undo(&mut self, id: u64, name: Name, token: Token, class: Arc<Class>, from: Moment) {
        let life = HoldMachine::undo(class, self.context.random.bits(), from);
        self.entries.insert(id, HoldEntry::new(id, life, name, token, None));
        self.step(id, Input::Tick);
    }

    /// Steps every machine whose timer is due.
    fn step_due_holds(&mut self) {
        let now = self.context.clock.now();
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.wake_at = Moment::FAR;
            }
            self.step(id, Input::Tick);
        }
    }

    /// Executes one step of one machine and its effects.
    fn step(&mut self, id: u64, input: Input) {
        let now = self.context.clock.now();
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let mut effects = Vec::new();
        entry.life.step(input, now, &mut effects);
        // Before the effects: the guard must have the new state before an observer or waiter reacts
        // to it.
        entry.shared.update(&entry.life);
        for effect in effects {
            self.execute(id, effect);
        }
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if entry.life.is_finished() {
            self.timers.remove(&(entry.wake_at, id));
            self.entries.remove(&id);
            return;
        }
        let wake = entry.life.wake_at();
        if wake != entry.wake_at {
            self.timers.remove(&(entry.wake_at, id));
            entry.wake_at = wake;
            if wake < Moment::FAR {
                self.timers.insert((wake, id));
            }
        }
    }

    fn execute(&mut self, id: u64, effect: Effect) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let class = Arc::clone(entry.life.class());
        match effect {
            Effect::Renew => {
                let Some(fence) = entry.life.fence() else { return };
                let renewal = RenewRequest::new(entry.name.clone(), entry.token.clone(), fence, class.ttl)
                    .with_lock_delay(class.release.lock_delay);
                self.due_renewals.entry(class.renew.timeout).or_default().push((id, renewal));
            }
            Effect::Heal => {
                let source = entry.token_source.as_ref();
                // Kept across retries until the outcome is known: a lost grant would otherwise look
                // foreign.
                let token = entry
                    .heal_token
                    .get_or_insert_with(|| {
                        source.and_then(|source| source.next_token()).unwrap_or_else(|| {
                            let foreign = self.context.foreign_holder(&entry.token);
                            let holder = foreign.as_ref().unwrap_or(&self.context.holder);
                            Token::fresh(holder, &class.name, &*self.context.random)
                        })
                    })
                    .clone();
                let request = AcquireRequest::new(entry.name.clone(), token, class.ttl)
                    // Whether it may be acquired was checked when the hold began.
                    .with_existing_names(true)
                    .with_lock_delay(class.release.lock_delay)
                    .with_floor(self.context.floors.get(&entry.name));
                store_call::heal(
                    &self.context,
                    id,
                    request,
                    class.acquire.timeout,
                    self.completion_sender.clone(),
                );
            }
            Effect::Release { .. } => {
                let request = ReleaseRequest::by_owner(entry.name.clone(), entry.token.clone())
                    .with_tombstone(entry.life.leaves_tombstone().then_some(TOMBSTONE_TTL));
                store_call::release(
                    &self.context,
                    id,
                    request,
                    class.release.timeout,
                    self.completion_sender.clone(),
                );
            }
            Effect::AdoptHealToken => {
                if let Some(token) = entry.heal_token.take() {
                    entry.token = token;
                    if let (Some(source), Some(fence)) = (&entry.token_source, entry.life.fence()) {
                        source.token_adopted(&entry.token, fence);
                    }
                }
            }
            Effect::UndoHeal => {
                if let Some(token) = entry.heal_token.take() {
                    let (name, undo) = (entry.name.clone(), self.context.next_id());
                    let now = self.context.clock.now();
                    self.start_undo(undo, name, token, class, now);
                }
            }
            Effect::UndoLate { from } => {
                let (name, token) = (entry.name.clone(), entry.token.clone());
                let undo = self.context.next_id();
                self.start_undo(undo, name, token, class, from);
            }
            Effect::Cancel(_) => entry.shared.cancel(),
            Effect::Emit(what) => emit(&self.context, entry, what),
            Effect::Finish(outcome) => {
                entry.outcome = Some(outcome);
                // The work is over, so the next local waiter may enter before the caller receives
                // the outcome.
                entry.permit = None;
                for answer in entry.release_waiters.drain(..) {
                    let _ = answer.send(outcome);
                }
            }
        }
    }

    fn send_renewals(&mut self) {
        for (within, batch) in std::mem::take(&mut self.due_renewals) {
            store_call::renew(&self.context, batch, within, self.completion_sender.clone());
        }
    }

    fn count_pending(&self) -> PendingWork {
        let mut left = PendingWork::default();
        for entry in self.entries.values() {
            match entry.life.state() {
                HoldState::Proven { .. }
                | HoldState::Unproven { .. }
                | HoldState::LocalOnly { .. }
                | HoldState::Lost(_) => left.holds += 1,
                // An undo without an attempt has not started yet: it waits for its lease to expire.
                HoldState::Debt { undo: true, attempt: 0, .. } => left.deferred_undos += 1,
                HoldState::Debt { undo: true, .. } => left.undos += 1,
                HoldState::Debt { .. } => left.debts += 1,
                HoldState::Releasing { .. } | HoldState::Done(_) => left.releasing += 1,
            }
        }
        left
    }
}

impl Drop for Keeper {
    // A keeper that ends early (panic, runtime shutdown) must not leave holds that believe they are
    // renewed.
    fn drop(&mut self) {
        // Holds that were granted a moment ago may still be queued as commands.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let KeeperCommand::Adopt(entry) = command {
                self.entries.insert(entry.id, *entry);
            }
        }
        for entry in self.entries.values_mut() {
            mark_lost(&self.context, entry);
        }
    }
}

/// Marks a hold as lost because no keeper renews it.
fn mark_lost(context: &Context, entry: &mut HoldEntry) {
    let mut effects = Vec::new();
    let now = context.clock.now();
    entry.life.step(Input::ForceEnd(Loss::KeeperGone), now, &mut effects);
    entry.shared.update(&entry.life);
    for effect in effects {
        // Only local effects: there is no task left to call the store from.
        match effect {
            Effect::Cancel(_) => entry.shared.cancel(),
            Effect::Emit(what) => emit(context, entry, what),
            _ => {}
        }
    }
}

fn emit(context: &Context, entry: &HoldEntry, what: EventKind) {
    let foreign = context.foreign_holder(&entry.token);
    let subject = EventSubject {
        name: Some(&entry.name),
        class: &entry.life.class().name,
        fence: entry.life.fence(),
        hold: entry.id,
        holder: foreign.as_ref(),
    };
    context.events.emit(&subject, what);
}
