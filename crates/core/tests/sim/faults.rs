//! Faults that strike clients and the store, and their end.

use std::sync::Arc;

use leasehold_core::event::Loss;
use leasehold_core::life::Input;

use crate::clock::MS;
use crate::court::Fact;
use crate::plan::changed;
use crate::world::{Event, World};

impl World {
    /// Rolls for each kind of fault, and again later.
    pub(crate) fn chaos(&mut self) {
        if self.healing {
            return;
        }
        self.after(self.plan.horizon / 20, Event::Chaos);
        let (faults, long) = (self.plan.faults, self.longest * 2);
        let victim = self.dice.index(self.clients.len());
        if self.dice.chance(faults.pause) {
            let until = self.now + self.dice.between(0, long);
            self.clients[victim].paused_until = until;
            self.note("pause", victim, until);
        }
        if self.dice.chance(faults.crash) && self.clients[victim].alive {
            self.note("crash", victim, 0);
            self.clients[victim].die();
            self.court.hear(self.now, &Fact::Crashed { client: victim });
            let back = self.dice.between(MS, long);
            self.after(back, Event::Restart { client: victim });
        }
        if self.dice.chance(faults.outage) {
            self.engine.down_until = self.now + self.dice.between(0, long);
            self.note("outage", 0, self.engine.down_until);
        }
        if self.dice.chance(faults.forget) {
            self.engine.forget();
            self.note("forget", 0, 0);
            self.court.hear(self.now, &Fact::Forgot);
        }
        if self.dice.chance(faults.policy) {
            self.change_policy(victim);
        }
        if self.dice.chance(faults.shutdown) {
            self.note("shutdown", victim, 0);
            let ids: Vec<_> = self.clients[victim].entries.keys().copied().collect();
            for id in ids {
                self.step(victim, id, Input::End(Loss::Shutdown));
            }
        }
    }

    /// One client picks up a changed class: running holds and later acquires.
    fn change_policy(&mut self, client: usize) {
        let which = self.dice.index(self.plan.classes.len());
        let class = changed(&self.plan.classes[which], &self.dice, self.plan.mistake);
        self.history
            .note(self.now, "policy", (client, 0), class.ttl.as_millis(), || {
                format!("{class:?}")
            });
        self.reckon(&class);
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

    /// Faults end; running work ends soon.
    pub(crate) fn heal(&mut self) {
        self.note("heal", 0, 0);
        self.healing = true;
        self.engine.down_until = self.now;
        for client in 0..self.clients.len() {
            let state = &mut self.clients[client];
            state.paused_until = self.now;
            state.alive = true;
            let holds: Vec<_> = state.entries.keys().copied().collect();
            for hold in holds {
                let by = self.dice.between(0, 500 * MS);
                self.after(by, Event::Done { client, hold });
            }
        }
    }

    fn note(&mut self, kind: &'static str, client: usize, more: u64) {
        self.history.note(self.now, kind, (client, 0), more, || {
            format!("{:.6}", more as f64 / 1e9)
        });
    }
}
