//! What follows the faults: everyone finishes, everyone gets everything in turn, everyone ends, and nothing is left.

use std::time::Duration;

use leasehold_core::store::Lease;
use leasehold_core::{Left, Name};

use super::class::PROBE;
use super::director::Director;
use super::drift::{MS, Nanos, SEC};
use super::engine::Service;
use super::plan::Route;
use super::process::Process;
use super::world::State;
use crate::history::Entry;

/// A client that is gone is noticed by its steward within one look.
const STEWARD: Nanos = 70 * SEC;

impl Director {
    pub(super) fn heal(&self) {
        let mut state = self.world.lock();
        state.healed = true;
        state.stopping = true;
        state.deaf = false;
        state.engine.service = Service::Serving;
        for host in &mut state.hosts {
            host.cut = None;
        }
        drop(state);
        self.note(Entry::Fault {
            fault: "every fault ends".to_owned(),
            mends: true,
        });
    }

    /// Until nobody has anything to do any more. What takes too long is written down.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        let longest = self.plan.longest();
        let step = (longest / 50).clamp(50 * MS, SEC);
        let bound = self.now() + 4 * longest + 60 * SEC;
        loop {
            self.run_until(self.now() + step)?;
            let rests = self.processes.iter().all(|process| {
                process
                    .as_ref()
                    .is_some_and(|process| !process.leaves() && process.rests())
            });
            let flying = self.world.lock().flying;
            let idle = |process: &Process| process.left() == Left::default();
            let served = self.plan.daemon.is_none()
                || self
                    .daemon
                    .as_ref()
                    .is_some_and(|daemon| !daemon.leaves() && daemon.left() == Some(Left::default()));
            if served && rests && flying == 0 && self.processes.iter().flatten().all(idle) {
                return Ok(());
            }
            if self.now() > bound {
                for process in self.processes.iter().flatten() {
                    self.remains(&process.who, process.left());
                    let stuck = u64::from(!process.rests());
                    self.left(&process.who, "tasks that do not end", stuck);
                }
                if let Some(daemon) = &self.daemon {
                    self.remains(&daemon.who, daemon.left().unwrap_or_default());
                } else if self.plan.daemon.is_some() {
                    self.left("daemon", "daemons that are down", 1);
                }
                return Ok(());
            }
        }
    }

    pub(super) fn remains(&self, who: &str, left: Left) {
        for (kind, count) in [
            ("holds", left.holds),
            ("releases", left.releasing),
            ("debts", left.debts),
            ("undos", left.undos),
            ("undos whose time has not come", left.later),
        ] {
            self.left(who, kind, count as u64);
        }
    }

    /// Only what is there is worth a line.
    fn left(&self, who: &str, kind: &str, count: u64) {
        if count > 0 {
            let kind = kind.to_owned();
            self.note_of(who, Entry::Remains { kind, count });
        }
    }

    /// Everyone has done what they had to do: what is in the store now belongs to someone who knows it.
    pub(super) fn calm(&self) {
        self.note(Entry::Calm);
        self.note_waiters();
        self.note_leases(|state, lease| !state.repeated(lease) && !state.deserted(lease));
    }

    /// Whoever waited has left. Not so behind a daemon: it goes on leaving for callers that are gone, which no count here shows, and an ask of
    /// theirs that comes later still takes a place that runs out.
    fn note_waiters(&self) {
        let state = self.world.lock();
        let lives = |(slot, life): (usize, u32)| {
            let host = state.hosts.get(slot);
            host.is_some_and(|host| host.alive && host.life == life)
        };
        let waiters = match &self.plan.daemon {
            Some(_) => 0,
            None => state.engine.waiters(state.now, lives),
        };
        drop(state);
        self.left("store", "waiters", waiters);
    }

    fn note_leases(&self, counts: impl Fn(&State, &Lease) -> bool) {
        let leases = {
            let state = self.world.lock();
            let mut leases = state.engine.leases(state.now);
            leases.retain(|lease| counts(&state, lease));
            leases
        };
        for lease in leases {
            self.note(Entry::Lease {
                name: lease.name.to_string(),
                holder: lease.holder,
                fence: lease.fence,
            });
        }
    }

    /// Everyone gets every name; then they queue for one; then they do without being told.
    pub(super) fn probe(&mut self) -> Result<(), String> {
        let names = self.world.lock().names.clone();
        for name in &names {
            for slot in 0..self.processes.len() {
                let routes: &[Route] = match self.plan.daemon {
                    Some(_) => &[Route::Library, Route::Kept, Route::Plain],
                    None => &[Route::Library],
                };
                for route in routes {
                    self.visit(*route, slot, name, MS);
                    self.settle(10 * SEC)?;
                }
            }
        }
        let Some(name) = names.first() else { return Ok(()) };
        // Only a store that queues keeps an order.
        let rounds: &[bool] = if self.plan.queue { &[false, true] } else { &[true] };
        for deaf in rounds {
            if *deaf {
                self.world.lock().deaf = true;
                self.note(Entry::Fault {
                    fault: "waiters are not told".to_owned(),
                    mends: false,
                });
            }
            for slot in 0..self.processes.len() {
                self.visit(Route::Library, slot, name, 700 * MS);
                self.run_until(self.now() + 60 * MS)?;
            }
            self.settle(20 * SEC)?;
        }
        self.world.lock().deaf = false;
        Ok(())
    }

    /// A process takes a name that it must get.
    fn visit(&mut self, route: Route, slot: usize, name: &Name, lasts: Nanos) {
        let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let name = name.clone();
        match route {
            Route::Library => {
                if let Some(worker) = process.worker(PROBE, 7) {
                    process.spawn(worker.probe(name, lasts));
                }
            }
            Route::Kept => {
                if let Some(client) = process.kept(PROBE, 8) {
                    process.spawn(client.probe(name, lasts));
                }
            }
            Route::Plain => {
                if let Some(client) = process.plain(PROBE, 9) {
                    process.spawn(client.probe(name, lasts));
                }
            }
        }
    }

    /// Until every task has ended, within bounds.
    fn settle(&mut self, within: Nanos) -> Result<(), String> {
        let bound = self.now() + within;
        while self.now() < bound && !self.processes.iter().flatten().all(Process::rests) {
            self.run_until(self.now() + 20 * MS)?;
        }
        Ok(())
    }

    /// Every process ends in order and leaves nothing.
    pub(super) fn close(&mut self) -> Result<(), String> {
        for process in self.processes.iter_mut().flatten() {
            process.leave(Duration::from_secs(5));
        }
        self.settle(15 * SEC)?;
        for process in self.processes.iter().flatten() {
            match process.has_left() {
                Some(left) => self.remains(&process.who, left),
                None => self.left(&process.who, "processes that do not end", 1),
            }
            let names = process
                .locks
                .as_ref()
                .map_or(0, leasehold_core::Locks::names_here);
            self.left(&process.who, "names in the local gate", names as u64);
            self.left(&process.who, "listeners", process.wakers.len() as u64);
            process.tally();
        }
        for process in self.processes.iter_mut().flatten() {
            process.close();
        }
        if let Some(daemon) = &self.daemon {
            self.remains(&daemon.who, daemon.left().unwrap_or_default());
            daemon.leave();
        }
        self.run_until(self.now() + STEWARD)?;
        self.close_daemon();
        for process in self.processes.iter().flatten() {
            self.left(&process.who, "tasks of the client", process.alive());
        }
        Ok(())
    }

    /// The daemon has ended in order and left nothing.
    fn close_daemon(&self) {
        let Some(daemon) = &self.daemon else { return };
        self.left(
            &daemon.who,
            "daemons that do not end",
            u64::from(!daemon.has_left()),
        );
        if let Some(why) = daemon.failed() {
            self.left(&daemon.who, &format!("starts that failed: {why}"), 1);
        }
        daemon.tally();
        daemon.close();
        self.left(&daemon.who, "tasks of the daemon", daemon.turns.alive());
        let state = self.world.lock();
        let wrong = state
            .faults
            .get("daemon: answers that something went wrong inside");
        let wrong = wrong.copied().unwrap_or(0);
        drop(state);
        self.left("daemon", "answers that something went wrong inside", wrong);
    }

    pub(super) fn quiet(&self) {
        let overdue = self.world.lock().orphaned().overdue;
        self.left("store", "leases of nobody past their time to live", overdue);
        self.note(Entry::Quiet);
        self.note_leases(|_, _| true);
        let rows = self.world.lock().target.rows();
        for row in rows {
            self.note_of("target", row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::mistake::Mistake;
    use crate::sim::plan::Plan;

    #[test]
    fn a_process_that_does_not_end_has_not_left_nothing() {
        let mut plan = Plan::new(1, Mistake::Nothing);
        plan.strikes.clear();
        let mut director = Director::new(&plan).unwrap();
        director.heal();
        let process = director.processes.first_mut().and_then(Option::as_mut);
        process.unwrap().spawn(std::future::pending());
        director.close().unwrap();
        let state = director.world.lock();
        let told = state.tape.records.iter().filter(|record| {
            matches!(&record.what, Entry::Remains { kind, .. } if kind == "processes that do not end")
        });
        let who: Vec<_> = told.map(|record| record.who.as_str()).collect();
        assert_eq!(who, ["c0.1"]);
    }
}
