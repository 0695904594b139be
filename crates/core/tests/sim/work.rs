//! The work under a hold: it checks like `Hold::check`, writes to a fenced target, and ends.

use leasehold_core::HoldStatus;
use leasehold_core::event::EventKind;
use leasehold_core::life::Input;
use leasehold_core::policy::Class;
use leasehold_core::types::Fence;

use crate::clock::{MS, Nanos, SEC};
use crate::hold_driver::heard_not_owned;
use crate::judge::Fact;
use crate::plan::Mistake;
use crate::simulation::{SimEvent, Simulation};

/// The work under one hold.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The pause between two protected steps.
    every: Nanos,
    /// The guard was dropped.
    over: bool,
    /// The hold's cancellation fired.
    pub(crate) cancelled: bool,
    /// For [`Mistake::FailuresOnly`]: what a holder without a deadline would know.
    struck_out: bool,
}

impl Work {
    pub(crate) fn count(&mut self, what: &EventKind, class: &Class) {
        let struck =
            matches!(what, EventKind::RenewFailed { failures, .. } if *failures >= class.renew.max_failures);
        self.struck_out |= struck || heard_not_owned(what);
    }
}

impl Simulation {
    pub(crate) fn begin_work(&mut self, client: usize, hold: u64, class: &Class) -> Work {
        let ttl = class.ttl.as_millis() * MS;
        let every = self.random.between(ttl / 20, ttl / 3);
        let lasts = if self.healing { 50 * MS } else { self.random.between(0, ttl * 3) };
        self.after(self.random.between(0, every), SimEvent::Work { client, hold });
        self.after(lasts, SimEvent::Done { client, hold });
        Work { every, ..Work::default() }
    }

    /// Does one protected step if the hold is valid at this very moment.
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
            Mistake::FailuresOnly => !work.struck_out,
            _ => !matches!(entry.life.deadline().judge(now), HoldStatus::Lost(_) | HoldStatus::Released),
        };
        self.history.note(self.now, "work", (client, id), u64::from(good), || format!("goes on: {good}"));
        if !good {
            self.wind_up(client, id);
            return;
        }
        let lease = self.store.record(&self.names[entry.name], self.now);
        let view = self.view(client, id, entry);
        let (at, name, fence) = (self.now, entry.name, entry.life.fence());
        let fact = Fact::Worked { hold: &view, lease: lease.as_ref() };
        self.judge.judge_fact(at, &fact);
        if let Some(fence) = fence {
            // A write in flight outlives every check: only the target can refuse it.
            let slow = !self.healing && self.random.chance(self.plan.faults.slow);
            let travel = self.random.between(MS / 10, if slow { 5 * SEC } else { 5 * MS });
            self.after(travel, SimEvent::Write { name, fence });
        }
        self.after(every, SimEvent::Work { client, hold: id });
    }

    /// The caller has noticed the loss of its hold and ends its work.
    pub(crate) fn wind_up(&mut self, client: usize, hold: u64) {
        let by = self.random.between(0, 20 * MS);
        self.after(by, SimEvent::Done { client, hold });
    }

    /// The guard is released or dropped, and the machine gets the same input.
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

    /// The target accepts a write whose fence is not older than the newest it has accepted.
    pub(crate) fn write(&mut self, name: usize, fence: Fence) {
        let newest = &mut self.target[name];
        let applied =
            newest.is_none_or(|newest| fence >= newest) || self.plan.mistake == Mistake::UnfencedTarget;
        if applied {
            *newest = Some(fence);
        }
        self.history.note(self.now, "write", (name, fence.get()), u64::from(applied), || {
            format!("applied: {applied}")
        });
        self.judge.judge_fact(self.now, &Fact::Wrote { name, fence, applied });
    }
}
