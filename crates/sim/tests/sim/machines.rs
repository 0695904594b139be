//! The machines mode: promises hold, a seed repeats its history, and known mistakes are found.
//!
//! Longer runs: `cargo xtask simulate --machines --seeds 50000`.

use leasehold_sim::{
    Campaign, Mistake, Progress, SimPlan, Topology, find_unrepeatable_seed, run_campaign, run_plan, shrink,
};

use crate::faults::assert_faults_happened;

// A sample for every test run: a few seconds, and enough to find every seeded bug of the machines.
const SEED_COUNT: u64 = 2_000;
// Histories within which a mistake must be found.
const MAX_HISTORIES: u64 = 1_500;

fn sample(seed_count: u64) -> Campaign {
    Campaign {
        first_seed: 0,
        seed_count,
        threads: 2,
        mistake: Mistake::Nothing,
        topology: Topology::Machines,
    }
}

#[test]
fn the_machines_keep_their_promises() {
    let progress = Progress::default();
    if let Some(failure) = run_campaign(sample(SEED_COUNT), &progress) {
        let run = failure.run.unwrap();
        panic!(
            "seed {} broke {:#?}\nrepeat: cargo xtask simulate --machines --from {} --seeds 1",
            failure.seed, run.judgement.findings, failure.seed
        );
    }
    assert_faults_happened(&progress, &[]);
}

#[test]
fn the_seed_is_the_history_of_the_machines() {
    let differs = find_unrepeatable_seed(sample(200), &Progress::default()).unwrap();
    assert_eq!(differs, None, "this seed ran differently the second time");
}

fn breaks(mistake: Mistake, promise: &str) -> Option<SimPlan> {
    let plans = (0..MAX_HISTORIES).map(|seed| SimPlan::for_machines(seed, mistake));
    let mut broken = plans.filter(|plan| run_plan(plan).unwrap().judgement.breaks(promise));
    broken.next()
}

fn must_break(mistake: Mistake, promise: &str) {
    let found = breaks(mistake, promise);
    assert!(found.is_some(), "{} did not break {promise} in {MAX_HISTORIES} histories", mistake.name());
}

#[test]
fn every_mistake_is_found_in_short_histories_too() {
    for mistake in Mistake::ALL {
        must_break(mistake, mistake.broken_promise());
    }
}

#[test]
fn requests_that_do_not_compare_break_i4() {
    must_break(Mistake::ReleaseWithoutComparing, "I4");
    must_break(Mistake::RenewWithoutComparing, "I4");
}

#[test]
fn a_failure_of_the_machines_is_shrunk() {
    let plan = breaks(Mistake::ReleaseDenied, "I7").unwrap();
    let run = run_plan(&plan).unwrap();
    let lines = run.history.records.len();
    let small = shrink(&plan, run, "I7");
    assert!(small.run.judgement.breaks("I7"));
    assert!(small.run.history.records.len() < lines, "{lines} lines before: {}", small.plan.summary());
    assert_eq!(run_plan(&small.plan).unwrap().digest(), small.run.digest());
}
