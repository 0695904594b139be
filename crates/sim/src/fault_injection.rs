//! Begins and ends the faults of a plan.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::PendingWork;

use super::drift::{MS, Nanos, SEC};
use super::engine::StoreHealth;
use super::fault::{OUTAGES, SimFault};
use super::mistake::Mistake;
use super::process::CLIENT_SUFFIXES;
use super::random::SimRandom;
use super::simulation::Simulation;
use super::world::{FaultEnd, SimEvent};
use leasehold_drill::history::HistoryEntry;

impl Simulation {
    pub(super) fn begin_fault(&mut self, number: usize) {
        let plan = Arc::clone(&self.plan);
        let Some(strike) = plan.faults.get(number) else {
            return;
        };
        self.record(HistoryEntry::Fault { fault: strike.fault.to_string(), mends: false });
        let kind = strike.fault.fault_key(plan.daemon_slot());
        let happened = self.apply_fault(&strike.fault, kind);
        let mut state = self.world.lock();
        if happened {
            state.count_fault(kind);
        }
        // Some faults end leases without any message; the orphan tracker has to see that at once.
        state.observe_leases(None);
    }

    /// Applies a fault and returns whether it has taken effect.
    fn apply_fault(&mut self, what: &SimFault, kind: &'static str) -> bool {
        // An operator's action and a fail-over take effect later, and are counted there.
        match what {
            SimFault::Pause { client, lasts } => return self.pause_process(*client, *lasts),
            SimFault::Kill { client, lasts } => {
                let killed = self.kill_process(*client);
                self.schedule_end(*lasts, FaultEnd::Restart(*client));
                return killed;
            }
            SimFault::ShutDown { client, lasts } => return self.shut_down_process(*client, *lasts),
            SimFault::Outage { how, lasts } => {
                let service = OUTAGES.iter().find(|(word, _)| word == how);
                self.set_store_health(service.map_or(StoreHealth::Silent, |(_, service)| *service));
                self.schedule_end(*lasts, FaultEnd::StoreServes);
            }
            SimFault::Partition { client, silent, lasts } => {
                let mut state = self.world.lock();
                let until = state.now.saturating_add(*lasts).min(self.horizon);
                if let Some(host) = state.hosts.get_mut(*client) {
                    host.partition = Some(*silent);
                    host.partition_until = until;
                    // During a partition the holder cannot renew, so only its clock tells it to stop.
                    if self.plan.mistake == Mistake::SteppedClock {
                        host.clock_lag += *lasts;
                    }
                }
                drop(state);
                self.schedule_end(*lasts, FaultEnd::PartitionEnds(*client));
            }
            // Fences stay ordered as long as the store's clock does not go back. So a store either loses data
            // or has its clock stepped back, never both.
            SimFault::Flush if self.stepped_back => return false,
            SimFault::Flush => {
                self.loses_data = true;
                self.world.lock().engine.lose_everything();
                self.record(HistoryEntry::Forgot);
            }
            SimFault::FailOver { lag, away } => {
                self.loses_data = true;
                self.world.lock().engine.freeze_replica();
                self.schedule_end(*lag, FaultEnd::TakeOver { away: *away, kind });
                return false;
            }
            SimFault::StepClock { by } if *by < 0 && self.loses_data => return false,
            SimFault::StepClock { by } => {
                self.stepped_back |= *by < 0;
                let mut state = self.world.lock();
                state.engine.step_clock(*by);
                if *by < 0 {
                    state.orphans.clock_stepped_back += by.unsigned_abs();
                }
                drop(state);
                // A clock that jumps ahead ends leases early, which is a loss for their holders.
                if *by > 0 {
                    self.record(HistoryEntry::Forgot);
                }
            }
            SimFault::Reboot { away } => {
                self.world.lock().engine.reboot();
                self.record(HistoryEntry::Forgot);
                // Only processes on the store's host go down with it.
                let slots = match self.plan.daemon_slot() {
                    Some(daemon) => daemon..daemon + 1,
                    None => 0..self.processes.len(),
                };
                for slot in slots {
                    self.kill_process(slot);
                    self.schedule_end(*away, FaultEnd::Restart(slot));
                }
            }
            SimFault::DropHints { lasts } => {
                self.world.lock().drops_hints = true;
                self.schedule_end(*lasts, FaultEnd::DeliverHints);
            }
            SimFault::OverridePolicy { client, class, field, value, lasts } => {
                self.override_policy(*client, *class, (field, value), *lasts, kind);
                return false;
            }
            SimFault::BreakLease { client, name } => {
                self.break_lease(*client, *name, kind);
                return false;
            }
        }
        true
    }

    pub(super) fn end_fault(&mut self, mend: FaultEnd) -> Result<(), String> {
        match mend {
            FaultEnd::Resume(slot, life) => {
                let mut state = self.world.lock();
                let now = state.now;
                let stopped = self.plan.mistake == Mistake::ClockStopsWithProcess;
                // The paused process may have been killed, and the host may run another one by now.
                let Some(host) = state.hosts.get_mut(slot).filter(|host| host.life == life) else {
                    return Ok(());
                };
                if stopped {
                    host.clock_lag += now.saturating_sub(host.paused_from);
                }
                let client = host.process_name(slot);
                drop(state);
                self.record_signal(client, "continue");
            }
            FaultEnd::Restart(slot) => return self.restart_process(slot),
            FaultEnd::StoreServes => self.set_store_health(StoreHealth::Serving),
            FaultEnd::PartitionEnds(slot) => {
                if let Some(host) = self.world.lock().hosts.get_mut(slot) {
                    host.partition = None;
                }
            }
            FaultEnd::TakeOver { away, kind } => {
                if !self.stepped_back {
                    let mut state = self.world.lock();
                    state.engine.fail_over();
                    state.count_fault(kind);
                    state.observe_leases(None);
                    drop(state);
                    self.record(HistoryEntry::Forgot);
                    self.set_store_health(StoreHealth::ReadOnly);
                    self.schedule_end(away, FaultEnd::StoreServes);
                }
            }
            FaultEnd::DeliverHints => self.world.lock().drops_hints = false,
        }
        Ok(())
    }

    /// Schedules the end of a fault, at the latest when all faults end.
    fn schedule_end(&self, lasts: Nanos, mend: FaultEnd) {
        let mut state = self.world.lock();
        let at = state.now.saturating_add(lasts).min(self.horizon.max(state.now));
        state.schedule_at(at, SimEvent::FaultEnds(mend));
    }

    fn set_store_health(&self, service: StoreHealth) {
        self.world.lock().engine.health = service;
    }

    fn record_signal(&self, client: String, signal: &str) {
        let signal = signal.to_owned();
        // The HTTP clients of a process appear in the history under names of their own.
        if self.plan.daemon.is_some() {
            for apart in CLIENT_SUFFIXES {
                self.record(HistoryEntry::Signal {
                    client: format!("{client}{apart}"),
                    signal: signal.clone(),
                });
            }
        }
        self.record(HistoryEntry::Signal { client, signal });
    }

    fn pause_process(&self, slot: usize, lasts: Nanos) -> bool {
        let mut state = self.world.lock();
        let (now, horizon) = (state.now, self.horizon);
        let Some(host) = state.hosts.get_mut(slot).filter(|host| host.alive && host.paused_until <= now)
        else {
            return false;
        };
        host.paused_from = now;
        host.paused_until = now.saturating_add(lasts).min(horizon);
        let (client, life) = (host.process_name(slot), host.life);
        drop(state);
        self.schedule_end(lasts, FaultEnd::Resume(slot, life));
        self.record_signal(client, "stop");
        true
    }

    fn shut_down_process(&mut self, slot: usize, lasts: Nanos) -> bool {
        let bound = Duration::from_nanos((self.plan.longest_lease() / 4).clamp(100 * MS, 2 * SEC));
        let (there, leaves) = match &self.daemon {
            Some(daemon) if self.is_daemon_slot(slot) => {
                let leaves = daemon.is_shutting_down();
                daemon.begin_shutdown();
                (true, leaves)
            }
            _ => match self.processes.get_mut(slot).and_then(Option::as_mut) {
                Some(process) => {
                    let leaves = process.is_shutting_down();
                    process.begin_shutdown(bound);
                    (true, leaves)
                }
                None => (false, false),
            },
        };
        if there {
            self.schedule_end(lasts, FaultEnd::Restart(slot));
        }
        there && !leaves
    }

    fn kill_process(&mut self, slot: usize) -> bool {
        if self.is_daemon_slot(slot) {
            return self.kill_daemon(slot);
        }
        let Some(process) = self.processes.get_mut(slot).and_then(Option::take) else {
            return false;
        };
        self.record_signal(process.who.as_ref().to_owned(), "kill");
        drop(process);
        true
    }

    /// Kills the daemon.
    fn kill_daemon(&mut self, slot: usize) -> bool {
        let Some(daemon) = self.daemon.take() else {
            return false;
        };
        self.record_signal(daemon.who.clone(), "kill");
        let mut state = self.world.lock();
        let life = state.hosts.get(slot).map_or(0, |host| host.life);
        state.orphans.unfinished_daemons.insert((slot, life));
        // Either the process dies and its system closes the connections, or the whole machine vanishes
        // and its peers receive nothing.
        if SimRandom::keyed(self.plan.seed, [0xdead, u64::from(life), 0]).chance(300) {
            state.count_fault("daemon: is gone without a word");
            state.blackhole_all(slot);
        }
        drop(state);
        drop(daemon);
        true
    }

    /// Starts the next daemon after a kill or a shutdown.
    fn restart_daemon(&mut self, slot: usize) -> Result<(), String> {
        if let Some(daemon) = &self.daemon {
            if !daemon.is_shutting_down() {
                return Ok(());
            }
            if !daemon.has_stopped() {
                // Still shutting down: try again soon.
                let mut state = self.world.lock();
                let soon = state.now + 50 * MS;
                state.schedule_at(soon, SimEvent::FaultEnds(FaultEnd::Restart(slot)));
                return Ok(());
            }
            daemon.record_counters();
            self.record_signal(daemon.who.clone(), "end");
            self.record_pending(&daemon.who, daemon.unfinished_work());
            // Pending work dies with the process, so its leases must not be blamed on the next daemon.
            if daemon.pending_work() != Some(PendingWork::default()) {
                let mut state = self.world.lock();
                let life = state.hosts.get(slot).map_or(0, |host| host.life);
                state.orphans.unfinished_daemons.insert((slot, life));
            }
        }
        self.daemon = None;
        self.start_process(slot)
    }

    /// Starts the next process of a host after a kill or a shutdown.
    fn restart_process(&mut self, slot: usize) -> Result<(), String> {
        if self.is_daemon_slot(slot) {
            return self.restart_daemon(slot);
        }
        if let Some(process) = self.process(slot) {
            if !process.is_shutting_down() {
                return Ok(());
            }
            let Some(left) = process.shutdown_leftover() else {
                let mut state = self.world.lock();
                let soon = state.now + 50 * MS;
                state.schedule_at(soon, SimEvent::FaultEnds(FaultEnd::Restart(slot)));
                return Ok(());
            };
            let client = process.who.as_ref().to_owned();
            if left == PendingWork::default() {
                process.record_counters();
                self.record_signal(client, "end");
            } else {
                // Its pending work is lost and no other process can do it: for the oracle that is a kill.
                self.record_signal(client, "kill");
            }
        }
        if let Some(place) = self.processes.get_mut(slot) {
            *place = None;
        }
        self.start_process(slot)
    }
}
