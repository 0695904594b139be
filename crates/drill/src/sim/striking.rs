//! What the director does when a fault strikes, and when it ends.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Left;

use super::dice::Dice;
use super::director::Director;
use super::drift::{MS, Nanos, SEC};
use super::engine::Service;
use super::mistake::Mistake;
use super::process::APART;
use super::strike::{OUTAGES, What};
use super::world::{Event, Mend};
use crate::history::Entry;

impl Director {
    pub(super) fn strike(&mut self, number: usize) {
        let plan = Arc::clone(&self.plan);
        let Some(strike) = plan.strikes.get(number) else {
            return;
        };
        self.note(Entry::Fault {
            fault: strike.what.to_string(),
            mends: false,
        });
        let kind = strike.what.kind(plan.daemon_slot());
        let happened = self.carry_out(&strike.what, kind);
        let mut state = self.world.lock();
        if happened {
            state.count(kind);
        }
        state.watch_leases(None);
    }

    /// True if it has happened. What an operator does and a fail-over are counted where they take effect, which is later.
    fn carry_out(&mut self, what: &What, kind: &'static str) -> bool {
        match what {
            What::Pause { client, lasts } => return self.pause(*client, *lasts),
            What::Kill { client, lasts } => {
                let killed = self.kill(*client);
                self.later(*lasts, Mend::Return(*client));
                return killed;
            }
            What::Leave { client, lasts } => return self.leave(*client, *lasts),
            What::Outage { how, lasts } => {
                let service = OUTAGES.iter().find(|(word, _)| word == how);
                self.serve(service.map_or(Service::Silent, |(_, service)| *service));
                self.later(*lasts, Mend::Serve);
            }
            What::Cut {
                client,
                silent,
                lasts,
            } => {
                let mut state = self.world.lock();
                let until = state.now.saturating_add(*lasts).min(self.horizon);
                if let Some(host) = state.hosts.get_mut(*client) {
                    host.cut = Some(*silent);
                    host.cut_until = until;
                    if self.plan.mistake == Mistake::SteppedClock {
                        host.behind += *lasts;
                    }
                }
                drop(state);
                self.later(*lasts, Mend::Rejoin(*client));
            }
            // Fences do not go back as long as the store's clock does not: a store does one or the other here.
            What::Flush if self.stepped_back => return false,
            What::Flush => {
                self.forgetful = true;
                self.world.lock().engine.flush();
                self.note(Entry::Forgot);
            }
            What::FailOver { lag, away } => {
                self.forgetful = true;
                self.world.lock().engine.lag();
                self.later(*lag, Mend::TakeOver { away: *away, kind });
                return false;
            }
            What::Step { by } if *by < 0 && self.forgetful => return false,
            What::Step { by } => {
                self.stepped_back |= *by < 0;
                let mut state = self.world.lock();
                state.engine.step(*by);
                if *by < 0 {
                    state.orphans.back += by.unsigned_abs();
                }
                drop(state);
                // A clock that jumps ahead ends leases early.
                if *by > 0 {
                    self.note(Entry::Forgot);
                }
            }
            What::Reboot { away } => {
                self.world.lock().engine.reboot();
                self.note(Entry::Forgot);
                // Only what shares the store's host goes down with it.
                let slots = match self.plan.daemon_slot() {
                    Some(daemon) => daemon..daemon + 1,
                    None => 0..self.processes.len(),
                };
                for slot in slots {
                    self.kill(slot);
                    self.later(*away, Mend::Return(slot));
                }
            }
            What::Deaf { lasts } => {
                self.world.lock().deaf = true;
                self.later(*lasts, Mend::Hear);
            }
            What::Override {
                client,
                class,
                field,
                value,
                lasts,
            } => {
                self.override_policy(*client, *class, (field, value), *lasts, kind);
                return false;
            }
            What::Break { client, name } => {
                self.break_lease(*client, *name, kind);
                return false;
            }
        }
        true
    }

    pub(super) fn mend(&mut self, mend: Mend) -> Result<(), String> {
        match mend {
            Mend::Continue(slot, life) => {
                let mut state = self.world.lock();
                let now = state.now;
                let stopped = self.plan.mistake == Mistake::ClockStopsWithProcess;
                let Some(host) = state.hosts.get_mut(slot).filter(|host| host.life == life) else {
                    return Ok(());
                };
                if stopped {
                    host.behind += now.saturating_sub(host.paused_from);
                }
                let client = host.who(slot);
                drop(state);
                self.signal(client, "continue");
            }
            Mend::Return(slot) => return self.come_back(slot),
            Mend::Serve => self.serve(Service::Serving),
            Mend::Rejoin(slot) => {
                if let Some(host) = self.world.lock().hosts.get_mut(slot) {
                    host.cut = None;
                }
            }
            Mend::TakeOver { away, kind } => {
                if !self.stepped_back {
                    let mut state = self.world.lock();
                    state.engine.fail_over();
                    state.count(kind);
                    state.watch_leases(None);
                    drop(state);
                    self.note(Entry::Forgot);
                    self.serve(Service::ReadOnly);
                    self.later(away, Mend::Serve);
                }
            }
            Mend::Hear => self.world.lock().deaf = false,
        }
        Ok(())
    }

    /// Nothing lasts longer than the faults do.
    fn later(&self, lasts: Nanos, mend: Mend) {
        let mut state = self.world.lock();
        let at = state.now.saturating_add(lasts).min(self.horizon.max(state.now));
        state.at(at, Event::Mend(mend));
    }

    fn serve(&self, service: Service) {
        self.world.lock().engine.service = service;
    }

    fn signal(&self, client: String, signal: &str) {
        let signal = signal.to_owned();
        if self.plan.daemon.is_some() {
            for apart in APART {
                self.note(Entry::Signal {
                    client: format!("{client}{apart}"),
                    signal: signal.clone(),
                });
            }
        }
        self.note(Entry::Signal { client, signal });
    }

    fn pause(&self, slot: usize, lasts: Nanos) -> bool {
        let mut state = self.world.lock();
        let (now, horizon) = (state.now, self.horizon);
        let Some(host) = state
            .hosts
            .get_mut(slot)
            .filter(|host| host.alive && host.paused_until <= now)
        else {
            return false;
        };
        host.paused_from = now;
        host.paused_until = now.saturating_add(lasts).min(horizon);
        let (client, life) = (host.who(slot), host.life);
        drop(state);
        self.later(lasts, Mend::Continue(slot, life));
        self.signal(client, "stop");
        true
    }

    fn leave(&mut self, slot: usize, lasts: Nanos) -> bool {
        let bound = Duration::from_nanos((self.plan.longest() / 4).clamp(100 * MS, 2 * SEC));
        let (there, leaves) = match &self.daemon {
            Some(daemon) if self.serves(slot) => {
                let leaves = daemon.leaves();
                daemon.leave();
                (true, leaves)
            }
            _ => match self.processes.get_mut(slot).and_then(Option::as_mut) {
                Some(process) => {
                    let leaves = process.leaves();
                    process.leave(bound);
                    (true, leaves)
                }
                None => (false, false),
            },
        };
        if there {
            self.later(lasts, Mend::Return(slot));
        }
        there && !leaves
    }

    fn kill(&mut self, slot: usize) -> bool {
        if self.serves(slot) {
            return self.kill_daemon(slot);
        }
        let Some(process) = self.processes.get_mut(slot).and_then(Option::take) else {
            return false;
        };
        self.signal(process.who.as_ref().to_owned(), "kill");
        drop(process);
        true
    }

    /// The daemon dies at once: its process, whose connections are then closed, or its machine, of which nothing is heard.
    fn kill_daemon(&mut self, slot: usize) -> bool {
        let Some(daemon) = self.daemon.take() else {
            return false;
        };
        self.signal(daemon.who.clone(), "kill");
        let mut state = self.world.lock();
        let life = state.hosts.get(slot).map_or(0, |host| host.life);
        state.orphans.deserters.insert((slot, life));
        if Dice::keyed(self.plan.seed, [0xdead, u64::from(life), 0]).chance(300) {
            state.count("daemon: is gone without a word");
            state.swallow_all(slot);
        }
        drop(state);
        drop(daemon);
        true
    }

    /// The next daemon takes the place of one that was killed or has ended.
    fn serve_again(&mut self, slot: usize) -> Result<(), String> {
        if let Some(daemon) = &self.daemon {
            if !daemon.leaves() {
                return Ok(());
            }
            if !daemon.has_left() {
                let mut state = self.world.lock();
                let soon = state.now + 50 * MS;
                state.at(soon, Event::Mend(Mend::Return(slot)));
                return Ok(());
            }
            daemon.tally();
            self.signal(daemon.who.clone(), "end");
            self.remains(&daemon.who, daemon.neglected());
            if daemon.left() != Some(Left::default()) {
                let mut state = self.world.lock();
                let life = state.hosts.get(slot).map_or(0, |host| host.life);
                state.orphans.deserters.insert((slot, life));
            }
        }
        self.daemon = None;
        self.open(slot)
    }

    /// Another process takes the place of one that was killed or has ended.
    fn come_back(&mut self, slot: usize) -> Result<(), String> {
        if self.serves(slot) {
            return self.serve_again(slot);
        }
        if let Some(process) = self.process(slot) {
            if !process.leaves() {
                return Ok(());
            }
            let Some(left) = process.has_left() else {
                let mut state = self.world.lock();
                let soon = state.now + 50 * MS;
                state.at(soon, Event::Mend(Mend::Return(slot)));
                return Ok(());
            };
            let client = process.who.as_ref().to_owned();
            if left == Left::default() {
                process.tally();
                self.signal(client, "end");
            } else {
                // It has ended with things undone that nobody else can do: as if it had been killed.
                self.signal(client, "kill");
            }
        }
        if let Some(place) = self.processes.get_mut(slot) {
            *place = None;
        }
        self.open(slot)
    }
}
