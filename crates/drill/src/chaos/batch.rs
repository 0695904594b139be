//! A batch of short drills, several at a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::join_all;
use leasehold_core::testbed::TestbedFactory;
use serde::Serialize;

use super::short_drill::{ShortDrillResult, only_timing_broken, run_short_drill};
use crate::fleet::{DrillError, WorkerProgram};

// A busy host fails drills for reasons that say nothing about the store. Four runs make that rare.
const MAX_RUNS_PER_DRILL: u32 = 4;

/// The totals of a batch.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct BatchTotals {
    /// Number of completed drills.
    pub drills: u64,
    /// Drills that could not be run, by seed, and why. They are no verdict on the store.
    pub failed: BTreeMap<u64, String>,
    /// Drills, by seed, whose first run broke only time limits and whose second run was clean.
    pub late: BTreeMap<u64, Vec<String>>,
    /// Drills, by seed, that broke promises, and which.
    pub violations: BTreeMap<u64, Vec<String>>,
    /// Number of drills by store and fault.
    pub faults: BTreeMap<String, u64>,
    /// Number of leases granted.
    pub grants: u64,
    /// Number of holds that were fenced.
    pub fenced: u64,
    /// Number of writes that the targets applied.
    pub applied: u64,
    /// Number of stale writes that the targets refused.
    pub refused: u64,
    /// Number of acquires that ended with *unavailable*.
    pub unavailable: u64,
    /// Number of releases that could not be confirmed.
    pub debts: u64,
}

impl BatchTotals {
    /// Adds the result of a drill.
    pub fn add(&mut self, done: &ShortDrillResult) {
        self.drills += 1;
        let key = format!("{}/{}", done.store, done.fault.as_str());
        *self.faults.entry(key).or_default() += 1;
        // A drill that broke time limits in both runs is a violation, and must not be listed as
        // late too.
        if !done.late.is_empty() && done.broken.is_empty() {
            self.late.insert(done.seed, done.late.clone());
        }
        if !done.broken.is_empty() {
            self.violations.insert(done.seed, done.broken.clone());
        }
        let of = &done.measures;
        self.grants += of.grants;
        self.fenced += of.abandoned.values().sum::<u64>();
        self.applied += of.applied;
        self.refused += of.refused;
        self.unavailable += of.unavailable;
        self.debts += of.debts;
    }
}

/// Runs the drills of `count` seeds from `first` on, at most `lanes` at a time, and calls `done`
/// for each. Dropping the future ends all processes.
pub async fn run_batch(
    first: u64,
    count: u64,
    lanes: usize,
    on: Option<&'static dyn TestbedFactory>,
    program: &WorkerProgram,
    done: impl FnMut(u64, &Result<ShortDrillResult, DrillError>),
) -> BatchTotals {
    // Cells are enough: all lanes are polled by one task.
    let (next, sums, done) = (Cell::new(0), RefCell::new(BatchTotals::default()), RefCell::new(done));
    let lane = || async {
        while next.get() < count {
            let seed = first.wrapping_add(next.replace(next.get() + 1));
            let ran = run_with_retries(async || run_short_drill(seed, on, program).await).await;
            (done.borrow_mut())(seed, &ran);
            match &ran {
                Ok(ran) => sums.borrow_mut().add(ran),
                Err(error) => {
                    sums.borrow_mut().failed.insert(seed, error.to_string());
                }
            }
        }
    };
    join_all((0..lanes.max(1)).map(|_| lane())).await;
    sums.into_inner()
}

/// Whether another run may succeed. A store that the director cannot use after the fault stays
/// broken, so it is no reason for a retry.
fn is_retryable(error: &DrillError) -> bool {
    matches!(error, DrillError::HostTooSlow { .. } | DrillError::WaitTimedOut(_) | DrillError::Fault(_))
}

/// Retries a drill that a busy host has disturbed. If only time limits were broken and the load
/// probe shows no reason, the drill must break them twice in a row. The result of the first run is
/// reported in any case.
async fn run_with_retries(
    mut run: impl AsyncFnMut() -> Result<ShortDrillResult, DrillError>,
) -> Result<ShortDrillResult, DrillError> {
    let (mut tries, mut late) = (1, Vec::new());
    loop {
        match run().await {
            Err(error) if tries < MAX_RUNS_PER_DRILL && is_retryable(&error) => tries += 1,
            Ok(ran) if late.is_empty() && only_timing_broken(&ran.broken) => late = ran.broken,
            Ok(mut ran) => {
                ran.late = late;
                return Ok(ran);
            }
            Err(error) if late.is_empty() => return Err(error),
            Err(error) => {
                return Err(DrillError::RerunFailed { error: Box::new(error), before: late.join("; ") });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::chaos::Fault;
    use crate::history::History;
    use crate::scenario::Measures;

    const TIME_LIMIT_BROKEN: &str = "L5: no client was granted the name";
    const SAFETY_BROKEN: &str = "I1: two at once";

    fn completed(broken: &[&str]) -> Result<ShortDrillResult, DrillError> {
        Ok(ShortDrillResult {
            seed: 7,
            store: "sqlite",
            fault: Fault::Kill,
            broken: broken.iter().map(|why| (*why).to_owned()).collect(),
            late: Vec::new(),
            took: Duration::ZERO,
            measures: Measures::default(),
            history: History::default(),
        })
    }

    fn disturbed() -> Result<ShortDrillResult, DrillError> {
        Err(DrillError::WaitTimedOut("for a client to work".into()))
    }

    /// Returns the final result for runs with these results, and how many runs it took.
    async fn final_result(
        ends: Vec<Result<ShortDrillResult, DrillError>>,
    ) -> (Result<ShortDrillResult, DrillError>, usize) {
        let all = ends.len();
        let mut ends = ends.into_iter();
        let told = run_with_retries(async || ends.next().unwrap()).await;
        (told, all - ends.len())
    }

    #[tokio::test]
    async fn late_twice_in_a_row_is_a_violation_once_is_listed_apart() {
        let (told_of, runs) = final_result(vec![
            completed(&[TIME_LIMIT_BROKEN]),
            completed(&[TIME_LIMIT_BROKEN]),
            completed(&[]),
        ])
        .await;
        let twice = told_of.unwrap();
        assert_eq!((runs, &*twice.broken), (2, &[TIME_LIMIT_BROKEN.to_owned()][..]));
        let (told_of, runs) =
            final_result(vec![completed(&[TIME_LIMIT_BROKEN]), completed(&[]), completed(&[])]).await;
        let once = told_of.unwrap();
        assert_eq!((runs, &*once.late), (2, &[TIME_LIMIT_BROKEN.to_owned()][..]));
        assert!(once.broken.is_empty());
        let mut sums = BatchTotals::default();
        sums.add(&twice);
        assert_eq!((sums.violations.len(), sums.late.len()), (1, 0));
        let mut sums = BatchTotals::default();
        sums.add(&once);
        assert_eq!((sums.violations.len(), sums.late.len()), (0, 1));
    }

    #[tokio::test]
    async fn a_broken_safety_promise_is_not_retried() {
        for broken in [&[SAFETY_BROKEN][..], &[TIME_LIMIT_BROKEN, SAFETY_BROKEN]] {
            let (told_of, runs) = final_result(vec![completed(broken), completed(&[])]).await;
            assert_eq!((runs, told_of.unwrap().broken.len()), (1, broken.len()));
        }
    }

    #[tokio::test]
    async fn disturbed_runs_are_retried_up_to_a_limit_and_reported() {
        let (told_of, runs) =
            final_result(vec![disturbed(), disturbed(), disturbed(), completed(&[]), disturbed()]).await;
        assert!(runs == 4 && told_of.is_ok());
        let (told_of, runs) =
            final_result(vec![disturbed(), disturbed(), disturbed(), disturbed(), completed(&[])]).await;
        assert!(runs == 4 && told_of.is_err());
        let (told_of, runs) =
            final_result(vec![Err(DrillError::Store("malformed".into())), completed(&[])]).await;
        assert!(runs == 1 && told_of.is_err());
        let (told_of, _) = final_result(vec![
            completed(&[TIME_LIMIT_BROKEN]),
            disturbed(),
            disturbed(),
            disturbed(),
            disturbed(),
            completed(&[]),
        ])
        .await;
        let why = told_of.unwrap_err().to_string();
        assert!(why.contains("a client to work") && why.contains(TIME_LIMIT_BROKEN), "{why}");
    }

    #[test]
    fn a_store_that_fails_after_the_fault_is_not_retried() {
        assert!(is_retryable(&DrillError::WaitTimedOut("for a client to work".into())));
        assert!(is_retryable(&DrillError::Fault("the server: refused".into())));
        assert!(!is_retryable(&DrillError::Store("database disk image is malformed".into())));
    }
}
