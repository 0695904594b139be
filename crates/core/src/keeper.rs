//! One per client: drives the machines. Due renewals in batches, deadlines, healing, releases, debts.
//!
//! The keeper only moves bytes and timers; every decision is the machine's (`life/`). It is one task that owns all
//! lives, so no two steps of a life can race. Store calls run beside it and report back through a channel.

mod answer;
mod command;
mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub use command::Left;
pub(crate) use command::{Command, Handle};
pub(crate) use entry::Entry;

use crate::call::{self, Answered};
use crate::clock::Moment;
use crate::event::{Loss, Subject, What};
use crate::life::{Effect, Input, Life, State};
use crate::policy::{Class, PolicyBook};
use crate::store::{Ask, Claim, Giving, Renewal, TOMBSTONE};
use crate::tools::Tools;
use crate::word::{Name, Token};

/// The most commands of one turn: timers must not wait behind a flood.
const TURN: usize = 128;

/// The task that keeps.
#[derive(Debug)]
pub(crate) struct Keeper {
    tools: Tools,
    book: Arc<PolicyBook>,
    commands: mpsc::UnboundedReceiver<Command>,
    answers: mpsc::UnboundedReceiver<Answered>,
    answer: mpsc::UnboundedSender<Answered>,
    /// In the order of their numbers: what concerns all of them happens in the same order every time.
    entries: BTreeMap<u64, Entry>,
    timers: BTreeSet<(Moment, u64)>,
    /// Renewals that are due in this turn, by their time-out.
    due: BTreeMap<Duration, Vec<(u64, Renewal)>>,
    /// The client has shut down. A hold whose grant was on its way here meanwhile, on another thread, ends as it comes.
    ended: bool,
}

impl Keeper {
    /// Starts the task on the current runtime. It ends when every handle is gone and nothing is left to do.
    pub(crate) fn spawn(tools: Tools, book: Arc<PolicyBook>) -> Handle {
        let (sender, commands) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let handle = Handle {
            sender,
            tools: tools.clone(),
        };
        let keeper = Self {
            tools,
            book,
            commands,
            answers,
            answer,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            due: BTreeMap::new(),
            ended: false,
        };
        tokio::spawn(keeper.run());
        handle
    }

    async fn run(mut self) {
        let mut open = true;
        while open || !self.entries.is_empty() {
            let next = self.timers.first().map_or(Moment::FAR, |(at, _)| *at);
            let sleep = self.tools.clock.sleep_until(next);
            tokio::select! {
                biased;
                Some(answered) = self.answers.recv() => self.answered(answered),
                command = self.commands.recv(), if open => match command {
                    Some(command) => self.command(command),
                    None => open = false,
                },
                () = sleep, if next < Moment::FAR => {}
            }
            // What has come meanwhile belongs to the same turn, and its renewals to the same batch.
            while let Ok(answered) = self.answers.try_recv() {
                self.answered(answered);
            }
            for _ in 0..TURN {
                let Ok(command) = self.commands.try_recv() else {
                    break;
                };
                self.command(command);
            }
            self.tick();
            self.send_renewals();
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Adopt(entry) => {
                let id = entry.id;
                self.entries.insert(id, *entry);
                // Its acquire may have begun under another policy, and waited for long.
                self.look_again(id);
                if self.ended {
                    self.step(id, Input::End(Loss::Shutdown));
                }
            }
            Command::Release { id, answer } => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    match (answer, entry.outcome) {
                        (Some(answer), Some(outcome)) => {
                            let _ = answer.send(outcome);
                        }
                        (Some(answer), None) => entry.waiting.push(answer),
                        (None, _) => {}
                    }
                }
                self.step(id, Input::Release);
            }
            Command::Undo {
                id,
                name,
                token,
                class,
            } => {
                let now = self.tools.clock.now();
                self.undo(id, name, token, class, now);
            }
            Command::Policies => {
                let ids: Vec<_> = self.entries.keys().copied().collect();
                ids.into_iter().for_each(|id| self.look_again(id));
            }
            Command::EndAll => {
                self.ended = true;
                let ids: Vec<_> = self.entries.keys().copied().collect();
                ids.into_iter()
                    .for_each(|id| self.step(id, Input::End(Loss::Shutdown)));
            }
            Command::Count(answer) => {
                let _ = answer.send(self.count());
            }
        }
    }

    /// The hold lives by the class in force. Where there is none that fits it any more, it keeps what it has.
    fn look_again(&mut self, id: u64) {
        let now = self.tools.clock.now();
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        let name = &entry.life.class().name;
        let class = self.book.in_force(name, &entry.tweaks, now);
        self.step(id, class.map_or(Input::Tick, Input::PolicyChanged));
    }

    fn undo(&mut self, id: u64, name: Name, token: Token, class: Arc<Class>, from: Moment) {
        let life = Life::undo(class, self.tools.random.bits(), from);
        self.entries.insert(id, Entry::new(id, life, name, token, None));
        self.step(id, Input::Tick);
    }

    /// Steps every life whose time has come.
    fn tick(&mut self) {
        let now = self.tools.clock.now();
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.wake = Moment::FAR;
            }
            self.step(id, Input::Tick);
        }
    }

    /// One step of one life, and what follows from it.
    fn step(&mut self, id: u64, input: Input) {
        let now = self.tools.clock.now();
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let mut effects = Vec::new();
        entry.life.step(input, now, &mut effects);
        // The guard sees the new state before anyone hears of it.
        entry.shared.update(&entry.life);
        for effect in effects {
            self.carry_out(id, effect);
        }
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if entry.life.finished() {
            self.timers.remove(&(entry.wake, id));
            self.entries.remove(&id);
            return;
        }
        let wake = entry.life.wake_at();
        if wake != entry.wake {
            self.timers.remove(&(entry.wake, id));
            entry.wake = wake;
            if wake < Moment::FAR {
                self.timers.insert((wake, id));
            }
        }
    }

    fn carry_out(&mut self, id: u64, effect: Effect) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let class = Arc::clone(entry.life.class());
        match effect {
            Effect::Renew => {
                let Some(fence) = entry.life.fence() else { return };
                let renewal = Renewal {
                    name: entry.name.clone(),
                    token: entry.token.clone(),
                    fence,
                    ttl: class.ttl,
                    lock_delay: class.release.lock_delay,
                };
                self.due
                    .entry(class.renew.timeout)
                    .or_default()
                    .push((id, renewal));
            }
            Effect::Heal => {
                let heirs = entry.heirs.as_ref();
                let token = entry
                    .heal_token
                    .get_or_insert_with(|| {
                        heirs.and_then(|heirs| heirs.next()).unwrap_or_else(|| {
                            let someone = self.tools.someone(&entry.token);
                            let holder = someone.as_ref().unwrap_or(&self.tools.holder);
                            Token::fresh(holder, &class.name, &*self.tools.random)
                        })
                    })
                    .clone();
                let mut ask = Ask::new(entry.name.clone(), token, class.ttl);
                ask.lock_delay = class.release.lock_delay;
                ask.floor = self.tools.floors.of(&entry.name);
                call::heal(&self.tools, id, ask, class.acquire.timeout, self.answer.clone());
            }
            Effect::Release { .. } => {
                let giving = Giving {
                    name: entry.name.clone(),
                    claim: Claim::Owner(entry.token.clone()),
                    tombstone: entry.life.leaves_tombstone().then_some(TOMBSTONE),
                };
                call::release(
                    &self.tools,
                    id,
                    giving,
                    class.release.timeout,
                    self.answer.clone(),
                );
            }
            Effect::TakeOver => {
                if let Some(token) = entry.heal_token.take() {
                    entry.token = token;
                    if let (Some(heirs), Some(fence)) = (&entry.heirs, entry.life.fence()) {
                        heirs.taken(&entry.token, fence);
                    }
                }
            }
            Effect::GiveBack => {
                if let Some(token) = entry.heal_token.take() {
                    let (name, undo) = (entry.name.clone(), self.tools.next_id());
                    let now = self.tools.clock.now();
                    self.undo(undo, name, token, class, now);
                }
            }
            Effect::Forget { from } => {
                let (name, token) = (entry.name.clone(), entry.token.clone());
                let undo = self.tools.next_id();
                self.undo(undo, name, token, class, from);
            }
            Effect::Cancel(_) => entry.shared.cancel(),
            Effect::Emit(what) => emit(&self.tools, entry, what),
            Effect::Finish(outcome) => {
                entry.outcome = Some(outcome);
                // The next one in this process may come in before the caller hears of it.
                entry.permit = None;
                for answer in entry.waiting.drain(..) {
                    let _ = answer.send(outcome);
                }
            }
        }
    }

    fn send_renewals(&mut self) {
        for (within, batch) in std::mem::take(&mut self.due) {
            call::renew(&self.tools, batch, within, self.answer.clone());
        }
    }

    fn count(&self) -> Left {
        let mut left = Left::default();
        for entry in self.entries.values() {
            match entry.life.state() {
                State::Proven { .. } | State::Unproven { .. } | State::LocalOnly { .. } | State::Lost(_) => {
                    left.holds += 1
                }
                State::Owing {
                    undo: true,
                    attempt: 0,
                    ..
                } => left.later += 1,
                State::Owing { undo: true, .. } => left.undos += 1,
                State::Owing { .. } => left.debts += 1,
                State::Releasing { .. } | State::Done(_) => left.releasing += 1,
            }
        }
        left
    }
}

impl Drop for Keeper {
    /// A keeper that dies (a panic, the runtime's end) takes no hold with it silently: each is lost, and says so.
    fn drop(&mut self) {
        // Holds that were granted a moment ago are still on their way here.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Adopt(entry) = command {
                self.entries.insert(entry.id, *entry);
            }
        }
        for entry in self.entries.values_mut() {
            lose(&self.tools, entry);
        }
    }
}

/// Nobody keeps this hold any more.
fn lose(tools: &Tools, entry: &mut Entry) {
    let mut effects = Vec::new();
    let now = tools.clock.now();
    entry.life.step(Input::End(Loss::KeeperGone), now, &mut effects);
    entry.shared.update(&entry.life);
    for effect in effects {
        match effect {
            Effect::Cancel(_) => entry.shared.cancel(),
            Effect::Emit(what) => emit(tools, entry, what),
            _ => {}
        }
    }
}

fn emit(tools: &Tools, entry: &Entry, what: What) {
    let someone = tools.someone(&entry.token);
    let subject = Subject {
        name: Some(&entry.name),
        class: &entry.life.class().name,
        fence: entry.life.fence(),
        hold: entry.id,
        holder: someone.as_ref(),
    };
    tools.events.emit(&subject, what);
}
