//! What can happen to one call, and how a test orders it.
//!
//! Three things decide the fate of a call, in this order: a standing order for its verb (`down`, `hang`), the
//! verb's script (`fail_next(3)`), and seeded chance. The same script and seed give the same run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::rng::{RandomExt, SeededRandom};
use crate::store::Cause;

/// One verb of [`Store`](crate::store::Store).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Verb {
    Acquire,
    Renew,
    Release,
    Inspect,
    List,
    Promise,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 6] = [
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Inspect,
        Self::List,
        Self::Promise,
    ];
}

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: it is passed on.
    Pass,
    /// It never reaches the store, and says so: definitely not done.
    Refuse(Cause),
    /// It never reaches the store, but nobody can tell: unknown.
    Vanish(Cause),
    /// It is applied, then the reply is lost: unknown.
    LoseReply,
    /// It never reaches the store and never ends, until its caller drops it.
    Hang,
    /// It is applied and never ends, until its caller drops it.
    HangAfter,
    /// It never reaches the store and panics: a defect in the store's own code.
    Panic,
}

/// Chances out of a thousand, each, that a call meets a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Odds {
    /// Of [`Fault::Refuse`].
    pub refuse: u64,
    /// Of [`Fault::Vanish`].
    pub vanish: u64,
    /// Of [`Fault::LoseReply`].
    pub lose_reply: u64,
    /// Of [`Fault::Hang`]: only for callers that give up by themselves.
    pub hang: u64,
}

impl Odds {
    fn draw(&self, random: &SeededRandom) -> Fault {
        let mut left = random.below(1000);
        for (odds, fault) in [
            (self.refuse, Fault::Refuse(Cause::Unreachable)),
            (self.vanish, Fault::Vanish(Cause::TimedOut)),
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

/// What is ordered for one verb, and what has come of it.
#[derive(Debug, Default)]
struct Plan {
    down: bool,
    hang: bool,
    script: VecDeque<Fault>,
    chance: Option<(SeededRandom, Odds)>,
    before: Duration,
    after: Duration,
    calls: u64,
    applied: u64,
}

impl Plan {
    fn next(&mut self) -> Fault {
        if self.hang {
            return Fault::Hang;
        }
        if self.down {
            return Fault::Refuse(Cause::Unreachable);
        }
        self.script.pop_front().unwrap_or_else(|| {
            self.chance
                .as_ref()
                .map_or(Fault::Pass, |(random, odds)| odds.draw(random))
        })
    }
}

/// The plans of all verbs, behind one lock so that an order for several is one step.
#[derive(Debug, Default)]
pub(super) struct Plans {
    verbs: Mutex<BTreeMap<Verb, Plan>>,
}

impl Plans {
    /// A call has come: what is to become of it, and the delays before and after.
    pub(super) fn call(&self, verb: Verb) -> (Fault, Duration, Duration) {
        let mut verbs = self.lock();
        let plan = verbs.entry(verb).or_default();
        plan.calls += 1;
        (plan.next(), plan.before, plan.after)
    }

    /// The inner store has answered a call.
    pub(super) fn applied(&self, verb: Verb) {
        self.lock().entry(verb).or_default().applied += 1;
    }

    /// How many calls came, and how many of them the inner store has answered.
    pub(super) fn counts(&self, verb: Verb) -> (u64, u64) {
        self.lock()
            .get(&verb)
            .map_or((0, 0), |plan| (plan.calls, plan.applied))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Verb, Plan>> {
        // Nothing panics while it is held: the plans are whole.
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Orders for some verbs of a [`Chaos`](super::Chaos). Each method returns the orders again, so that scripts
/// read as one line: `chaos.renew().pass_next(1).fail_next(2).lose_reply(1)`.
#[derive(Debug)]
pub struct Faults<'a> {
    plans: &'a Plans,
    verbs: Vec<Verb>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(plans: &'a Plans, verbs: &[Verb]) -> Self {
        Self {
            plans,
            verbs: verbs.to_vec(),
        }
    }

    /// Standing order: the store is out of reach (definitely not done) until called with `false`.
    pub fn down(&self, down: bool) -> &Self {
        self.each(|plan| plan.down = down)
    }

    /// Standing order: calls never end. Those that hang stay so until dropped, whatever is ordered later.
    pub fn hang(&self, hang: bool) -> &Self {
        self.each(|plan| plan.hang = hang)
    }

    /// Standing order: calls wait this long before they reach the store.
    pub fn delay(&self, before: Duration) -> &Self {
        self.each(|plan| plan.before = before)
    }

    /// Standing order: replies come this long after the store has answered.
    pub fn delay_reply(&self, after: Duration) -> &Self {
        self.each(|plan| plan.after = after)
    }

    /// Standing order: chance decides about calls that no script is left for.
    pub fn seeded(&self, seed: u64, odds: Odds) -> &Self {
        // One source per verb, so that one verb's calls do not change another's fate.
        self.each(|plan| plan.chance = Some((SeededRandom::new(seed), odds)))
    }

    /// Script: the next `count` calls pass.
    pub fn pass_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Pass)
    }

    /// Script: the next `count` calls cannot reach the store: definitely not done.
    pub fn fail_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Refuse(Cause::Unreachable))
    }

    /// Script: the next `count` calls are lost before the store sees them, and nobody can tell: unknown.
    pub fn vanish_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Vanish(Cause::TimedOut))
    }

    /// Script: the next `count` calls are applied, but their replies are lost: unknown.
    pub fn lose_reply(&self, count: usize) -> &Self {
        self.script(count, Fault::LoseReply)
    }

    /// Script: the next `count` calls never reach the store and never end.
    pub fn hang_next(&self, count: usize) -> &Self {
        self.script(count, Fault::Hang)
    }

    /// Script: the next `count` calls are applied and never end.
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

    /// Takes every order back; the counts stay.
    pub fn calm(&self) -> &Self {
        self.each(|plan| {
            *plan = Plan {
                calls: plan.calls,
                applied: plan.applied,
                ..Plan::default()
            };
        })
    }

    fn each(&self, change: impl Fn(&mut Plan)) -> &Self {
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
        let odds = Odds {
            refuse: 200,
            vanish: 200,
            lose_reply: 200,
            hang: 200,
        };
        let [one, same, other] = [1, 1, 2].map(|seed| {
            let plans = Plans::default();
            Faults::new(&plans, &[Verb::Renew]).seeded(seed, odds);
            (0..200).map(|_| plans.call(Verb::Renew).0).collect::<Vec<_>>()
        });
        assert_eq!(one, same);
        assert_ne!(one, other);
        for fault in [
            Fault::Pass,
            Fault::Refuse(Cause::Unreachable),
            Fault::Vanish(Cause::TimedOut),
            Fault::LoseReply,
            Fault::Hang,
        ] {
            let share = one.iter().filter(|drawn| **drawn == fault).count();
            assert!((20..=60).contains(&share), "{fault:?}: {share} of 200");
        }
    }

    #[test]
    fn standing_orders_come_before_scripts_and_scripts_before_chance() {
        let plans = Plans::default();
        let orders = Faults::new(&plans, &[Verb::Renew]);
        let always = Odds {
            refuse: 1000,
            ..Odds::default()
        };
        orders.seeded(1, always).lose_reply(1).hang(true);
        assert_eq!(plans.call(Verb::Renew).0, Fault::Hang);
        orders.hang(false);
        assert_eq!(plans.call(Verb::Renew).0, Fault::LoseReply);
        assert_eq!(plans.call(Verb::Renew).0, Fault::Refuse(Cause::Unreachable));
        orders.calm();
        assert_eq!(plans.call(Verb::Renew).0, Fault::Pass);
        assert_eq!(plans.counts(Verb::Renew), (4, 0));
    }
}
