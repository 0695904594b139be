//! The work under a hold: it checks like `Hold::check`, writes to a fenced target, and ends.

use leasehold_core::event::What;
use leasehold_core::life::{Input, State};
use leasehold_core::policy::Class;
use leasehold_core::word::Fence;

use crate::clock::{MS, Nanos, SEC};
use crate::court::Fact;
use crate::keeping::heard_not_owned;
use crate::plan::Mistake;
use crate::world::{Event, World};

/// The work under one hold.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The pause between two protected steps.
    every: Nanos,
    /// The guard was dropped.
    over: bool,
    /// The cancellation fired.
    pub(crate) cancelled: bool,
    /// For [`Mistake::StrikesOnly`]: what a holder without a deadline would know.
    struck_out: bool,
}

impl Work {
    pub(crate) fn count(&mut self, what: &What, class: &Class) {
        let struck =
            matches!(what, What::RenewFailed { failures, .. } if *failures >= class.renew.max_failures);
        self.struck_out |= struck || heard_not_owned(what);
    }
}

impl World {
    pub(crate) fn begin_work(&mut self, client: usize, hold: u64, class: &Class) -> Work {
        let ttl = class.ttl.as_millis() * MS;
        let every = self.dice.between(ttl / 20, ttl / 3);
        let lasts = if self.healing {
            50 * MS
        } else {
            self.dice.between(0, ttl * 3)
        };
        self.after(self.dice.between(0, every), Event::Work { client, hold });
        self.after(lasts, Event::Done { client, hold });
        Work {
            every,
            ..Work::default()
        }
    }

    /// One protected step, if the hold is good at this very moment.
    pub(crate) fn work(&mut self, client: usize, id: u64) {
        let state = &self.clients[client];
        let now = state.clock.read(self.now);
        let Some(entry) = state.entries.get(&id) else {
            return;
        };
        let Some(work) = entry.work.as_ref().filter(|work| !work.over) else {
            return;
        };
        let every = work.every;
        let good = match self.plan.mistake {
            Mistake::CachedValidity => !work.cancelled,
            Mistake::StrikesOnly => !work.struck_out,
            _ => !matches!(entry.life.state(), State::Lost(_)) && now < entry.life.deadline(),
        };
        self.history
            .note(self.now, "work", (client, id), u64::from(good), || {
                format!("goes on: {good}")
            });
        if !good {
            self.wind_up(client, id);
            return;
        }
        let lease = self.engine.record(&self.names[entry.name], self.now);
        let view = self.view(client, id, entry);
        let (at, name, fence) = (self.now, entry.name, entry.life.fence());
        let fact = Fact::Worked {
            hold: &view,
            lease: lease.as_ref(),
        };
        self.court.hear(at, &fact);
        if let Some(fence) = fence {
            // A write in flight outlives every check: only the target can refuse it.
            let slow = !self.healing && self.dice.chance(self.plan.faults.slow);
            let travel = self.dice.between(MS / 10, if slow { 5 * SEC } else { 5 * MS });
            self.after(travel, Event::Write { name, fence });
        }
        self.after(every, Event::Work { client, hold: id });
    }

    /// The caller has noticed that its hold is lost, and lets go of it.
    pub(crate) fn wind_up(&mut self, client: usize, hold: u64) {
        let by = self.dice.between(0, 20 * MS);
        self.after(by, Event::Done { client, hold });
    }

    /// The guard is released or dropped: the machine is told the same.
    pub(crate) fn done(&mut self, client: usize, id: u64) {
        let Some(entry) = self.clients[client].entries.get_mut(&id) else {
            return;
        };
        let Some(work) = entry.work.as_mut().filter(|work| !work.over) else {
            return;
        };
        work.over = true;
        self.history.note(self.now, "done", (client, id), 0, String::new);
        self.step(client, id, Input::Release);
    }

    /// The target admits a write whose fence is not older than the newest it has admitted.
    pub(crate) fn write(&mut self, name: usize, fence: Fence) {
        let newest = &mut self.target[name];
        let applied =
            newest.is_none_or(|newest| fence >= newest) || self.plan.mistake == Mistake::UnfencedTarget;
        if applied {
            *newest = Some(fence);
        }
        self.history
            .note(self.now, "write", (name, fence.get()), u64::from(applied), || {
                format!("applied: {applied}")
            });
        self.court.hear(self.now, &Fact::Wrote { name, fence, applied });
    }
}
