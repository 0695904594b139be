//! Takes away whatever a failure does not need: strikes, kinds of fault, single faults, processes, tasks, names, time.

use super::director::{Run, live};
use super::plan::Plan;
use crate::oracle::Finding;

/// The most histories that are lived to shrink one.
const MOST_RUNS: usize = 600;

/// A plan that still breaks the promise, and its history.
#[derive(Debug)]
pub struct Shrunk {
    /// The promise.
    pub broken: &'static str,
    /// What is left of the plan.
    pub plan: Plan,
    /// The history of that.
    pub run: Run,
    /// How many histories were lived on the way.
    pub tried: usize,
}

impl Shrunk {
    /// How the promise was broken at first. Others may be broken before, and are not what was looked for.
    #[must_use]
    pub fn found(&self) -> Option<&Finding> {
        first(&self.run, self.broken)
    }
}

fn first<'a>(run: &'a Run, broken: &str) -> Option<&'a Finding> {
    let mut found = run.judgement.findings.iter();
    found.find(|found| found.invariant == broken)
}

struct Shrinking {
    broken: &'static str,
    best: Plan,
    run: Run,
    tried: usize,
}

impl Shrinking {
    /// Keeps the smaller plan if it still fails.
    fn try_less(&mut self, less: Plan) -> bool {
        if self.tried >= MOST_RUNS {
            return false;
        }
        self.tried += 1;
        match live(&less) {
            Ok(run) if run.judgement.breaks(self.broken) => {
                self.best = less;
                self.run = run;
                true
            }
            _ => false,
        }
    }

    fn less(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut less = self.best.clone();
        change(&mut less);
        self.try_less(less)
    }

    fn strikes(&mut self) {
        let mut at = self.best.strikes.len();
        while let Some(last) = at.checked_sub(1) {
            at = last;
            self.less(|plan| {
                plan.strikes.remove(last);
            });
        }
    }

    fn odds(&mut self) {
        for kind in 0..self.best.chances().len() {
            let there = self.best.chances().get(kind).is_some_and(|odds| **odds > 0);
            if there {
                self.less(|plan| {
                    if let Some(odds) = plan.chances().get_mut(kind) {
                        **odds = 0;
                    }
                });
            }
        }
    }

    /// The last process goes, and what strikes it.
    fn clients(&mut self) {
        while self.best.clients > 1 {
            let went = self.less(|plan| {
                let daemon = plan.daemon_slot();
                plan.clients -= 1;
                let left = plan.clients;
                plan.strikes.retain(|strike| {
                    let client = strike.what.client();
                    client.is_none_or(|client| client < left || Some(client) == daemon)
                });
                // The daemon's host comes after those of the clients.
                for strike in &mut plan.strikes {
                    strike.what.aim(|client| client.min(left));
                }
            });
            if !went {
                break;
            }
        }
    }

    fn tasks(&mut self) {
        while self.best.tasks > 1 {
            let went = self.less(|plan| {
                plan.tasks -= 1;
                plan.classes.pop();
            });
            if !went {
                break;
            }
        }
    }

    /// Faults end right after the promise was broken.
    fn horizon(&mut self) {
        let first = first(&self.run, self.broken).map_or(u64::MAX, |found| found.at);
        if first < self.best.horizon {
            self.less(|plan| plan.horizon = first);
        }
        for _ in 0..6 {
            let went = self.less(|plan| {
                plan.horizon = plan.horizon * 2 / 3;
                let end = plan.horizon;
                plan.strikes.retain(|strike| strike.at < end);
            });
            if !went {
                break;
            }
        }
    }

    /// Spares messages: first half of those that were struck, then quarters, down to single ones.
    fn messages(&mut self) {
        let mut size = self.run.struck.len().div_ceil(2);
        while size > 0 {
            let struck = self.run.struck.clone();
            let mut any = false;
            for part in struck.chunks(size) {
                any |= self.less(|plan| plan.spared.extend(part));
            }
            if size == 1 && !any {
                break;
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

/// A smaller plan that breaks the same promise. The same plan gives the same result.
#[must_use]
pub fn shrink(plan: &Plan, run: Run, broken: &'static str) -> Shrunk {
    let mut work = Shrinking {
        broken,
        best: plan.clone(),
        run,
        tried: 0,
    };
    // What was needed at first may no longer be once something else is gone.
    for _ in 0..2 {
        work.strikes();
        work.odds();
        work.tasks();
        work.clients();
        if work.best.names > 1 {
            work.less(|plan| plan.names = 1);
        }
        work.horizon();
        work.messages();
    }
    Shrunk {
        broken,
        plan: work.best,
        run: work.run,
        tried: work.tried,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::mistake::Mistake;

    #[test]
    fn what_is_shown_is_the_promise_that_was_shrunk_for() {
        let plan = Plan::new(1, Mistake::Nothing);
        let mut run = live(&plan).unwrap();
        for (at, invariant) in [(1, "I8"), (2, "I1"), (3, "I1")] {
            run.judgement.findings.push(Finding {
                invariant,
                at,
                name: "sim:0".to_owned(),
                why: String::new(),
            });
        }
        let small = Shrunk {
            broken: "I1",
            plan,
            run,
            tried: 0,
        };
        let found = small.found().unwrap();
        assert_eq!((found.invariant, found.at), ("I1", 2));
    }
}
