//! Plans of the machines mode: short histories of the client, with faults that reach every arm of its
//! state machines.
//!
//! One task a process, TTLs of a few seconds at most, and many faults in a short time. Such a history
//! costs a fraction of an ordinary one, so that many more of them run in the same time. What long
//! leases and many tasks can show is left to the ordinary histories.

use std::iter::repeat_with;

use super::class::ClassPlan;
use super::drift::{MS, SEC};
use super::fault::{SimFault, SimScheduledFault};
use super::mistake::Mistake;
use super::plan::{FaultOdds, SimPlan};
use super::random::SimRandom;

/// The longest TTL, in milliseconds: the leases of the recovery have as much.
const MAX_TTL_MS: u64 = 2_000;

impl SimPlan {
    /// The plan of a seed in machines mode.
    #[must_use]
    pub fn for_machines(seed: u64, mistake: Mistake) -> Self {
        let random = SimRandom::keyed(seed, [0x3ac4, 0, 0]);
        let mut plan = Self::draw(seed, mistake);
        (plan.tasks, plan.clients) = (1, 2 + random.index(3));
        let short =
            |task| repeat_with(|| ClassPlan::draw(task, &random, 200)).find(|class| class.ttl <= MAX_TTL_MS);
        plan.classes = (0..plan.tasks).filter_map(short).collect();
        let longest = plan.classes.iter().map(|class| class.ttl).max().unwrap_or(0);
        plan.horizon = (longest * 4 * MS).clamp(2 * SEC, 8 * SEC);
        let some = |most: u64| if random.chance(400) { random.between(1, most) } else { 0 };
        plan.odds = FaultOdds {
            drop: some(300),
            refuse: some(300),
            reset: some(300),
            mute: some(300),
            slow: some(300),
            repeat: some(300),
            hint: some(1_000),
            cancel: some(400),
            careless: some(400),
        };
        let fault = |_| SimScheduledFault {
            at: random.between(plan.horizon / 50, plan.horizon - plan.horizon / 10),
            fault: SimFault::draw(&random, &plan.profile, plan.clients, plan.names, &plan.classes),
        };
        plan.faults = (0..random.below(9)).map(fault).collect();
        plan.add_late_fault(plan.clients);
        plan
    }
}
