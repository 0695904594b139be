//! Faults of clients and of the store, and their end.

use std::sync::Arc;

use leasehold_core::event::Loss;
use leasehold_core::life::Input;

use crate::clock::MS;
use crate::judge::Fact;
use crate::plan::changed_class;
use crate::simulation::{SimEvent, Simulation};

impl Simulation {
    /// Draws each kind of fault, and schedules the next draw.
    pub(crate) fn chaos(&mut self) {
        if self.healing {
            return;
        }
        self.after(self.plan.horizon / 20, SimEvent::Chaos);
        let (faults, long) = (self.plan.faults, self.longest * 2);
        let victim = self.random.index(self.clients.len());
        if self.random.chance(faults.pause) {
            let until = self.now + self.random.between(0, long);
            self.clients[victim].paused_until = until;
            self.note("pause", victim, until);
        }
        if self.random.chance(faults.crash) && self.clients[victim].alive {
            self.note("crash", victim, 0);
            self.clients[victim].die();
            self.judge.judge_fact(self.now, &Fact::Crashed { client: victim });
            let back = self.random.between(MS, long);
            self.after(back, SimEvent::Restart { client: victim });
        }
        if self.random.chance(faults.outage) {
            self.store.down_until = self.now + self.random.between(0, long);
            self.note("outage", 0, self.store.down_until);
        }
        if self.random.chance(faults.forget) {
            self.store.lose_data();
            self.note("forget", 0, 0);
            self.judge.judge_fact(self.now, &Fact::StoreLostData);
        }
        if self.random.chance(faults.policy) {
            self.change_policy(victim);
        }
        if self.random.chance(faults.shutdown) {
            self.note("shutdown", victim, 0);
            let ids: Vec<_> = self.clients[victim].entries.keys().copied().collect();
            for id in ids {
                self.step(victim, id, Input::ForceEnd(Loss::Shutdown));
            }
        }
    }

    /// One client picks up a changed class, for running holds and later acquires.
    fn change_policy(&mut self, client: usize) {
        let which = self.random.index(self.plan.classes.len());
        let class = changed_class(&self.plan.classes[which], &self.random, self.plan.mistake);
        self.history.note(self.now, "policy", (client, 0), class.ttl.as_millis(), || format!("{class:?}"));
        self.account_for_class(&class);
        let told = self.told(&class);
        let state = &mut self.clients[client];
        state.classes[which] = Arc::clone(&class);
        let mut changed = Vec::new();
        for (id, entry) in &mut state.entries {
            if entry.declared.name == class.name {
                entry.declared = Arc::clone(&class);
                changed.push(*id);
            }
        }
        for id in changed {
            self.step(client, id, Input::PolicyChanged(Arc::clone(&told)));
        }
    }

    pub(crate) fn restart(&mut self, client: usize) {
        self.clients[client].alive = true;
    }

    /// Ends all faults; running work ends soon.
    pub(crate) fn heal(&mut self) {
        self.note("heal", 0, 0);
        self.healing = true;
        self.store.down_until = self.now;
        for client in 0..self.clients.len() {
            let state = &mut self.clients[client];
            state.paused_until = self.now;
            state.alive = true;
            let holds: Vec<_> = state.entries.keys().copied().collect();
            for hold in holds {
                let by = self.random.between(0, 500 * MS);
                self.after(by, SimEvent::Done { client, hold });
            }
        }
    }

    fn note(&mut self, kind: &'static str, client: usize, more: u64) {
        self.history.note(self.now, kind, (client, 0), more, || format!("{:.6}", more as f64 / 1e9));
    }
}
