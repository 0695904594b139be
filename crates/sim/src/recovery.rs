//! What follows the faults: clients finish their work, acquire every name in turn, shut down, and
//! leave nothing behind.

use std::time::Duration;

use leasehold_core::store::Lease;
use leasehold_core::{Name, PendingWork};

use super::class::PROBE_CLASS;
use super::drift::{MS, Nanos, SEC};
use super::engine::StoreHealth;
use super::plan::Route;
use super::process::SimProcess;
use super::simulation::Simulation;
use super::world::WorldState;
use leasehold_drill::history::HistoryEntry;

// A client that was dropped is noticed by its policy task within one poll.
const POLICY_TASK_EXIT_TIME: Nanos = 70 * SEC;

impl Simulation {
    pub(super) fn end_faults(&self) {
        let mut state = self.world.lock();
        state.faults_ended = true;
        state.stopping = true;
        state.drops_hints = false;
        state.engine.health = StoreHealth::Serving;
        for host in &mut state.hosts {
            host.partition = None;
        }
        drop(state);
        self.record(HistoryEntry::Fault { fault: "every fault ends".to_owned(), mends: true });
    }

    /// Runs until no client has pending work. Work that takes too long is recorded.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        // An undo is tried for 60 s plus a TTL (ADR 0007); the bound leaves room for several in a row.
        let longest = self.plan.longest_lease();
        let step = (longest / 50).clamp(50 * MS, SEC);
        let bound = self.now() + 4 * longest + 60 * SEC;
        loop {
            self.run_until(self.now() + step)?;
            let rests = self.processes.iter().all(|process| {
                process.as_ref().is_some_and(|process| !process.is_shutting_down() && process.is_idle())
            });
            let flying = self.world.lock().in_flight;
            let idle = |process: &SimProcess| process.pending_work() == PendingWork::default();
            // A daemon that is down is due to restart, so the drain waits for it.
            let served = self.plan.daemon.is_none()
                || self.daemon.as_ref().is_some_and(|daemon| {
                    !daemon.is_shutting_down() && daemon.pending_work() == Some(PendingWork::default())
                });
            if served && rests && flying == 0 && self.processes.iter().flatten().all(idle) {
                return Ok(());
            }
            if self.now() > bound {
                for process in self.processes.iter().flatten() {
                    self.record_pending(&process.who, process.pending_work());
                    let stuck = u64::from(!process.is_idle());
                    self.record_leftover(&process.who, "tasks that do not end", stuck);
                }
                if let Some(daemon) = &self.daemon {
                    self.record_pending(&daemon.who, daemon.pending_work().unwrap_or_default());
                } else if self.plan.daemon.is_some() {
                    self.record_leftover("daemon", "daemons that are down", 1);
                }
                return Ok(());
            }
        }
    }

    pub(super) fn record_pending(&self, who: &str, left: PendingWork) {
        for (kind, count) in [
            ("holds", left.holds),
            ("releases", left.releasing),
            ("debts", left.debts),
            ("undos", left.undos),
            ("undos whose time has not come", left.deferred_undos),
        ] {
            self.record_leftover(who, kind, count as u64);
        }
    }

    /// Records a leftover; zero is not worth a record.
    fn record_leftover(&self, who: &str, kind: &str, count: u64) {
        if count > 0 {
            let kind = kind.to_owned();
            self.record_for(who, HistoryEntry::Remains { kind, count });
        }
    }

    /// Records the start of the calm: every lease in the store now belongs to a client that knows it.
    pub(super) fn record_calm(&self) {
        self.record(HistoryEntry::Calm);
        self.record_waiters();
        self.record_leases(|state, lease| !state.was_repeated(lease) && !state.is_left_by_daemon(lease));
    }

    /// Records waiters that are still queued although no client waits.
    fn record_waiters(&self) {
        let state = self.world.lock();
        let lives = |(slot, life): (usize, u32)| {
            let host = state.hosts.get(slot);
            host.is_some_and(|host| host.alive && host.life == life)
        };
        // A daemon keeps removing queue entries of disconnected callers, which no counter shows. A late
        // request of such a caller may also queue again until its entry expires.
        let waiters = match &self.plan.daemon {
            Some(_) => 0,
            None => state.engine.stale_waiters(state.now, lives),
        };
        drop(state);
        self.record_leftover("store", "waiters", waiters);
    }

    fn record_leases(&self, counts: impl Fn(&WorldState, &Lease) -> bool) {
        let leases = {
            let state = self.world.lock();
            let mut leases = state.engine.leases(state.now);
            leases.retain(|lease| counts(&state, lease));
            leases
        };
        for lease in leases {
            self.record(HistoryEntry::Lease {
                name: lease.name.to_string(),
                holder: lease.holder,
                fence: lease.fence,
            });
        }
    }

    /// Every client acquires every name; then all queue for one name, with and without wake-ups.
    pub(super) fn probe_all(&mut self) -> Result<(), String> {
        let names = self.world.lock().names.clone();
        for name in &names {
            for slot in 0..self.processes.len() {
                let routes: &[Route] = match self.plan.daemon {
                    Some(_) => &[Route::Library, Route::Kept, Route::Plain],
                    None => &[Route::Library],
                };
                for route in routes {
                    self.spawn_probe(*route, slot, name, MS);
                    self.run_until_idle(10 * SEC)?;
                }
            }
        }
        let Some(name) = names.first() else { return Ok(()) };
        // A store without a queue promises no order.
        let rounds: &[bool] = if self.plan.queue { &[false, true] } else { &[true] };
        for deaf in rounds {
            if *deaf {
                self.world.lock().drops_hints = true;
                self.record(HistoryEntry::Fault { fault: "waiters are not told".to_owned(), mends: false });
            }
            for slot in 0..self.processes.len() {
                self.spawn_probe(Route::Library, slot, name, 700 * MS);
                // The gap fixes the order in which the clients ask, which L6 compares.
                self.run_until(self.now() + 60 * MS)?;
            }
            self.run_until_idle(20 * SEC)?;
        }
        self.world.lock().drops_hints = false;
        Ok(())
    }

    /// Spawns an acquire that must be granted.
    fn spawn_probe(&mut self, route: Route, slot: usize, name: &Name, lasts: Nanos) {
        let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let name = name.clone();
        match route {
            Route::Library => {
                if let Some(worker) = process.worker(PROBE_CLASS, 7) {
                    process.spawn(worker.probe(name, lasts));
                }
            }
            Route::Kept => {
                if let Some(client) = process.daemon_hold_client(PROBE_CLASS, 8) {
                    process.spawn(client.probe(name, lasts));
                }
            }
            Route::Plain => {
                if let Some(client) = process.plain_http_client(PROBE_CLASS, 9) {
                    process.spawn(client.probe(name, lasts));
                }
            }
        }
    }

    /// Runs until every task has ended, at most `within`.
    fn run_until_idle(&mut self, within: Nanos) -> Result<(), String> {
        let bound = self.now() + within;
        while self.now() < bound && !self.processes.iter().flatten().all(SimProcess::is_idle) {
            self.run_until(self.now() + 20 * MS)?;
        }
        Ok(())
    }

    /// Shuts every process down and records what it leaves.
    pub(super) fn stop_all(&mut self) -> Result<(), String> {
        for process in self.processes.iter_mut().flatten() {
            process.begin_shutdown(Duration::from_secs(5));
        }
        self.run_until_idle(15 * SEC)?;
        for process in self.processes.iter().flatten() {
            match process.shutdown_leftover() {
                Some(left) => self.record_pending(&process.who, left),
                None => self.record_leftover(&process.who, "processes that do not end", 1),
            }
            let names = process.locks.as_ref().map_or(0, leasehold_core::Locks::local_name_count);
            self.record_leftover(&process.who, "names in the local gate", names as u64);
            self.record_leftover(&process.who, "listeners", process.wakers.len() as u64);
            process.record_counters();
        }
        for process in self.processes.iter_mut().flatten() {
            process.drop_client();
        }
        // Before the shutdown, which would finish pending work and so hide it.
        if let Some(daemon) = &self.daemon {
            self.record_pending(&daemon.who, daemon.pending_work().unwrap_or_default());
            daemon.begin_shutdown();
        }
        self.run_until(self.now() + POLICY_TASK_EXIT_TIME)?;
        self.check_daemon_stopped();
        for process in self.processes.iter().flatten() {
            self.record_leftover(&process.who, "tasks of the client", process.live_tasks());
        }
        Ok(())
    }

    /// Checks that the daemon has stopped and left nothing.
    fn check_daemon_stopped(&self) {
        let Some(daemon) = &self.daemon else { return };
        self.record_leftover(&daemon.who, "daemons that do not end", u64::from(!daemon.has_stopped()));
        if let Some(why) = daemon.start_error() {
            self.record_leftover(&daemon.who, &format!("starts that failed: {why}"), 1);
        }
        daemon.record_counters();
        daemon.drop_client();
        self.record_leftover(&daemon.who, "tasks of the daemon", daemon.runtime.live_tasks());
        let state = self.world.lock();
        let wrong = state.faults.get("daemon: answers that something went wrong inside");
        let wrong = wrong.copied().unwrap_or(0);
        drop(state);
        self.record_leftover("daemon", "answers that something went wrong inside", wrong);
    }

    pub(super) fn record_quiet(&self) {
        let overdue = self.world.lock().orphan_stats().overdue;
        self.record_leftover("store", "leases of nobody past their time to live", overdue);
        self.record(HistoryEntry::Quiet);
        self.record_leases(|_, _| true);
        let rows = self.world.lock().target.take_rows();
        for row in rows {
            self.record_for("target", row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mistake::Mistake;
    use crate::plan::SimPlan;

    #[test]
    fn a_process_that_does_not_stop_is_recorded_as_left_over() {
        let mut plan = SimPlan::new(1, Mistake::Nothing);
        plan.faults.clear();
        let mut director = Simulation::new(&plan).unwrap();
        director.end_faults();
        let process = director.processes.first_mut().and_then(Option::as_mut);
        process.unwrap().spawn(std::future::pending());
        director.stop_all().unwrap();
        let state = director.world.lock();
        let remains = state.history.records.iter().filter(|record| {
            matches!(&record.what, HistoryEntry::Remains { kind, .. } if kind == "processes that do not end")
        });
        let who: Vec<_> = remains.map(|record| record.who.as_str()).collect();
        assert_eq!(who, ["c0.1"]);
    }
}
