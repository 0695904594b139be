//! Removes what a failure does not need: faults, kinds of fault, single message faults, processes,
//! tasks, names, time.

use super::plan::SimPlan;
use super::simulation::{SimRun, run_plan};
use leasehold_drill::oracle::Finding;

// Bounds the time that one shrink takes.
const MAX_SHRINK_RUNS: usize = 600;

/// A smaller plan that still breaks the promise, and its run.
#[derive(Debug)]
pub struct ShrunkPlan {
    /// The number of the broken promise.
    pub broken: &'static str,
    /// What is left of the plan.
    pub plan: SimPlan,
    /// The run of that plan.
    pub run: SimRun,
    /// Number of histories that were run for the shrink.
    pub runs_tried: usize,
}

impl ShrunkPlan {
    /// The first finding about this promise. Earlier findings may be about other promises.
    #[must_use]
    pub fn first_finding(&self) -> Option<&Finding> {
        first_finding_of(&self.run, self.broken)
    }
}

fn first_finding_of<'a>(run: &'a SimRun, broken: &str) -> Option<&'a Finding> {
    let mut found = run.judgement.findings.iter();
    found.find(|found| found.invariant == broken)
}

struct Shrinker {
    broken: &'static str,
    best: SimPlan,
    run: SimRun,
    runs_tried: usize,
}

impl Shrinker {
    /// Keeps the smaller plan if it still breaks the promise.
    fn try_plan(&mut self, less: SimPlan) -> bool {
        if self.runs_tried >= MAX_SHRINK_RUNS {
            return false;
        }
        self.runs_tried += 1;
        match run_plan(&less) {
            Ok(run) if run.judgement.breaks(self.broken) => {
                self.best = less;
                self.run = run;
                true
            }
            _ => false,
        }
    }

    fn try_change(&mut self, change: impl FnOnce(&mut SimPlan)) -> bool {
        let mut less = self.best.clone();
        change(&mut less);
        self.try_plan(less)
    }

    fn remove_faults(&mut self) {
        // From the end: removing an element does not move those that are still to be tried.
        let mut at = self.best.faults.len();
        while let Some(last) = at.checked_sub(1) {
            at = last;
            self.try_change(|plan| {
                plan.faults.remove(last);
            });
        }
    }

    fn zero_odds(&mut self) {
        for kind in 0..self.best.all_odds_mut().len() {
            let there = self.best.all_odds_mut().get(kind).is_some_and(|odds| **odds > 0);
            if there {
                self.try_change(|plan| {
                    if let Some(odds) = plan.all_odds_mut().get_mut(kind) {
                        **odds = 0;
                    }
                });
            }
        }
    }

    /// Removes the last process and the faults that hit it.
    fn remove_clients(&mut self) {
        while self.best.clients > 1 {
            let went = self.try_change(|plan| {
                let daemon = plan.daemon_slot();
                // The last one, so that the numbers of the other clients stay.
                plan.clients -= 1;
                let left = plan.clients;
                plan.faults.retain(|strike| {
                    let client = strike.fault.target_client();
                    client.is_none_or(|client| client < left || Some(client) == daemon)
                });
                // The daemon's host comes after the clients' hosts, so its number moves down.
                for strike in &mut plan.faults {
                    strike.fault.retarget(|client| client.min(left));
                }
            });
            if !went {
                break;
            }
        }
    }

    fn remove_tasks(&mut self) {
        while self.best.tasks > 1 {
            let went = self.try_change(|plan| {
                plan.tasks -= 1;
                // Classes belong to tasks by position.
                plan.classes.pop();
            });
            if !went {
                break;
            }
        }
    }

    /// Ends the faults right after the promise was broken, then earlier and earlier.
    fn shorten_horizon(&mut self) {
        let first = first_finding_of(&self.run, self.broken).map_or(u64::MAX, |found| found.at);
        if first < self.best.horizon {
            self.try_change(|plan| plan.horizon = first);
        }
        for _ in 0..6 {
            let went = self.try_change(|plan| {
                plan.horizon = plan.horizon * 2 / 3;
                let end = plan.horizon;
                plan.faults.retain(|strike| strike.at < end);
            });
            if !went {
                break;
            }
        }
    }

    /// Spares messages: first half of those that met a fault, then quarters, down to single ones.
    fn spare_messages(&mut self) {
        let mut size = self.run.faulted_messages.len().div_ceil(2);
        while size > 0 {
            // Faulted messages change with every accepted plan, so they are read again for each size.
            let struck = self.run.faulted_messages.clone();
            let mut any = false;
            for part in struck.chunks(size) {
                any |= self.try_change(|plan| plan.spared_messages.extend(part));
            }
            if size == 1 && !any {
                break;
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

/// Shrinks a plan that breaks a promise. The same plan gives the same result.
#[must_use]
pub fn shrink(plan: &SimPlan, run: SimRun, broken: &'static str) -> ShrunkPlan {
    let mut work = Shrinker { broken, best: plan.clone(), run, runs_tried: 0 };
    // A second round: a part that was needed at first may be removable once others are gone.
    for _ in 0..2 {
        work.remove_faults();
        work.zero_odds();
        work.remove_tasks();
        work.remove_clients();
        if work.best.names > 1 {
            work.try_change(|plan| plan.names = 1);
        }
        work.shorten_horizon();
        work.spare_messages();
    }
    ShrunkPlan { broken, plan: work.best, run: work.run, runs_tried: work.runs_tried }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mistake::Mistake;

    #[test]
    fn the_reported_finding_is_the_promise_shrunk_for() {
        let plan = SimPlan::new(1, Mistake::Nothing);
        let mut run = run_plan(&plan).unwrap();
        for (at, invariant) in [(1, "I8"), (2, "I1"), (3, "I1")] {
            run.judgement.findings.push(Finding {
                invariant,
                at,
                name: "sim:0".to_owned(),
                why: String::new(),
            });
        }
        let small = ShrunkPlan { broken: "I1", plan, run, runs_tried: 0 };
        let found = small.first_finding().unwrap();
        assert_eq!((found.invariant, found.at), ("I1", 2));
    }
}
