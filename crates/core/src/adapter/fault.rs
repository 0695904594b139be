//! Faults of one call, and how a test scripts them.
//!
//! Three sources decide about a call, in this order: a standing fault of its operation (`down`,
//! `hang`), the operation's script (`fail_next(3)`), and seeded chance. The same script and seed
//! give the same run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::rng::{RandomExt, SeededRandom};
use crate::store::StoreErrorKind;

/// One operation of [`Store`](crate::store::Store).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum StoreOp {
    Acquire,
    Renew,
    Release,
    Inspect,
    List,
    Promise,
    /// Any operation on documents.
    Documents,
}

impl StoreOp {
    /// Every operation of the store.
    pub const ALL: [Self; 7] = [
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Inspect,
        Self::List,
        Self::Promise,
        Self::Documents,
    ];
}

/// The fault of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault: the call is passed on.
    Pass,
    /// The call never reaches the store and reports *definitely not done*.
    Refuse(StoreErrorKind),
    /// The call never reaches the store and reports *unknown*.
    Vanish(StoreErrorKind),
    /// The call is applied, but its reply is lost: *unknown*.
    LoseReply,
    /// The call never reaches the store and hangs until its caller drops it.
    Hang,
    /// The call is applied and hangs until its caller drops it.
    HangAfter,
    /// The call never reaches the store and panics: a defect in the store's code.
    Panic,
}

/// The odds of each fault, out of a thousand calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultOdds {
    /// Odds of [`Fault::Refuse`].
    pub refuse: u64,
    /// Odds of [`Fault::Vanish`].
    pub vanish: u64,
    /// Odds of [`Fault::LoseReply`].
    pub lose_reply: u64,
    /// Odds of [`Fault::Hang`]: only for callers with a timeout of their own.
    pub hang: u64,
}

impl FaultOdds {
    fn pick_fault(&self, random: &SeededRandom) -> Fault {
        let mut left = random.below(1000);
        for (odds, fault) in [
            (self.refuse, Fault::Refuse(StoreErrorKind::Unreachable)),
            (self.vanish, Fault::Vanish(StoreErrorKind::TimedOut)),
            (self.lose_reply, Fault::LoseReply),
            (self.hang, Fault::Hang),
        ] {
            if left < odds {
                return fault;
            }
            left -= odds;
        }
        Fault::Pass
    }
}

// The faults and counts of one operation.
#[derive(Debug, Default)]
struct FaultPlan {
    down: bool,
    hang: bool,
    script: VecDeque<Fault>,
    odds: Option<(SeededRandom, FaultOdds)>,
    delay_before: Duration,
    delay_after: Duration,
    calls: u64,
    applied: u64,
}

impl FaultPlan {
    fn next_fault(&mut self) -> Fault {
        if self.hang {
            return Fault::Hang;
        }
        if self.down {
            return Fault::Refuse(StoreErrorKind::Unreachable);
        }
        self.script.pop_front().unwrap_or_else(|| {
            self.odds.as_ref().map_or(Fault::Pass, |(random, odds)| odds.pick_fault(random))
        })
    }
}

// One lock for all operations, so that a change of several is one step.
#[derive(Debug, Default)]
pub(super) struct FaultPlans {
    verbs: Mutex<BTreeMap<StoreOp, FaultPlan>>,
}

impl FaultPlans {
    /// Counts a call and returns its fault and the delays before and after.
    pub(super) fn next_call(&self, verb: StoreOp) -> (Fault, Duration, Duration) {
        let mut verbs = self.lock();
        let plan = verbs.entry(verb).or_default();
        plan.calls += 1;
        (plan.next_fault(), plan.delay_before, plan.delay_after)
    }

    /// Counts an answer of the inner store.
    pub(super) fn record_applied(&self, verb: StoreOp) {
        self.lock().entry(verb).or_default().applied += 1;
    }

    /// The numbers of calls and of answers of the inner store.
    pub(super) fn counts(&self, verb: StoreOp) -> (u64, u64) {
        self.lock().get(&verb).map_or((0, 0), |plan| (plan.calls, plan.applied))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<StoreOp, FaultPlan>> {
        // No code under this lock panics, so a poisoned lock is harmless.
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Scripts faults for some operations of a [`FaultyStore`](super::FaultyStore). Each method returns
/// the script, so that calls chain: `store.renew().pass_next(1).fail_next(2).lose_reply(1)`.
#[derive(Debug)]
pub struct FaultScript<'a> {
    plans: &'a FaultPlans,
    verbs: Vec<StoreOp>,
}

impl<'a> FaultScript<'a> {
    pub(super) fn new(plans: &'a FaultPlans, verbs: &[StoreOp]) -> Self {
        Self { plans, verbs: verbs.to_vec() }
    }

    /// Standing fault: the store is unreachable (definitely not done) until called with `false`.
    pub fn down(&self, down: bool) -> &Self {
        self.each(|plan| plan.down = down)
    }

    /// Standing fault: calls hang. A call that hangs stays so until it is dropped, whatever is set
    /// later.
    pub fn hang(&self, hang: bool) -> &Self {
        self.each(|plan| plan.hang = hang)
    }

    /// Standing fault: calls wait this long before they reach the store.
    pub fn delay(&self, before: Duration) -> &Self {
        self.each(|plan| plan.delay_before = before)
    }

    /// Standing fault: replies arrive this long after the store has answered.
    pub fn delay_reply(&self, after: Duration) -> &Self {
        self.each(|plan| plan.delay_after = after)
    }

    /// Standing fault: chance decides about calls for which no script is left.
    pub fn seeded(&self, seed: u64, odds: FaultOdds) -> &Self {
        // One random source per operation, so that calls of one do not change the faults of
        // another.
        self.each(|plan| plan.odds = Some((SeededRandom::new(seed), odds)))
    }

    /// Script: the next `count` calls pass.
    pub fn pass_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Pass)
    }

    /// Script: the next `count` calls cannot reach the store: definitely not done.
    pub fn fail_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Refuse(StoreErrorKind::Unreachable))
    }

    /// Script: the next `count` calls are lost before the store receives them: unknown.
    pub fn vanish_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Vanish(StoreErrorKind::TimedOut))
    }

    /// Script: the next `count` calls are applied, but their replies are lost: unknown.
    pub fn lose_reply(&self, count: usize) -> &Self {
        self.script(count, Fault::LoseReply)
    }

    /// Script: the next `count` calls never reach the store and hang.
    pub fn hang_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Hang)
    }

    /// Script: the next `count` calls are applied and hang.
    pub fn hang_after_next(&self, count: usize) -> &Self {
        self.script(count, Fault::HangAfter)
    }

    /// Script: the next `count` calls panic.
    pub fn panic_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Panic)
    }

    /// Script: `fault` for the next `count` calls after those already scripted.
    pub fn script(&self, count: usize, fault: Fault) -> &Self {
        self.each(|plan| plan.script.extend(std::iter::repeat_n(fault, count)))
    }

    /// Removes every fault; the counts stay.
    pub fn clear(&self) -> &Self {
        self.each(|plan| {
            *plan = FaultPlan { calls: plan.calls, applied: plan.applied, ..FaultPlan::default() };
        })
    }

    fn each(&self, change: impl Fn(&mut FaultPlan)) -> &Self {
        let mut plans = self.plans.lock();
        for verb in &self.verbs {
            change(plans.entry(*verb).or_default());
        }
        drop(plans);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let odds = FaultOdds { refuse: 200, vanish: 200, lose_reply: 200, hang: 200 };
        let [one, same, other] = [1, 1, 2].map(|seed| {
            let plans = FaultPlans::default();
            FaultScript::new(&plans, &[StoreOp::Renew]).seeded(seed, odds);
            (0..200).map(|_| plans.next_call(StoreOp::Renew).0).collect::<Vec<_>>()
        });
        assert_eq!(one, same);
        assert_ne!(one, other);
        for fault in [
            Fault::Pass,
            Fault::Refuse(StoreErrorKind::Unreachable),
            Fault::Vanish(StoreErrorKind::TimedOut),
            Fault::LoseReply,
            Fault::Hang,
        ] {
            let share = one.iter().filter(|drawn| **drawn == fault).count();
            assert!((20..=60).contains(&share), "{fault:?}: {share} of 200");
        }
    }

    #[test]
    fn standing_orders_come_before_scripts_and_scripts_before_chance() {
        let plans = FaultPlans::default();
        let orders = FaultScript::new(&plans, &[StoreOp::Renew]);
        let always = FaultOdds { refuse: 1000, ..FaultOdds::default() };
        orders.seeded(1, always).lose_reply(1).hang(true);
        assert_eq!(plans.next_call(StoreOp::Renew).0, Fault::Hang);
        orders.hang(false);
        assert_eq!(plans.next_call(StoreOp::Renew).0, Fault::LoseReply);
        assert_eq!(plans.next_call(StoreOp::Renew).0, Fault::Refuse(StoreErrorKind::Unreachable));
        orders.clear();
        assert_eq!(plans.next_call(StoreOp::Renew).0, Fault::Pass);
        assert_eq!(plans.counts(StoreOp::Renew), (4, 0));
    }
}
