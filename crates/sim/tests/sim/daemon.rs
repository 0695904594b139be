//! The real daemon between the real clients and their store: promises hold, every kind of fault
//! happens, a seed repeats its history, and known mistakes are found and shrunk.
//!
//! Longer runs: `cargo xtask simulate --daemon --seeds 2000`.

use leasehold_sim::{
    Campaign, FaultOdds, Mistake, Progress, Route, SimFault, SimPlan, SimRun, SimScheduledFault, Topology,
    find_unrepeatable_seed, run_campaign, run_plan, shrink,
};

use crate::faults::assert_faults_happened;

// A sample for every test run; longer runs use `cargo xtask simulate`.
const SEED_COUNT: u64 = 100;
// Histories within which a mistake must be found.
const MAX_HISTORIES: u64 = 60;

// Faults that must happen with a daemon, besides those of every history.
const EXPECTED_DAEMON_FAULTS: &[&str] = &[
    "daemon: cannot reach its store",
    "daemon: hears nothing from its store",
    "daemon: is gone without a word",
    "daemon: is killed",
    "daemon: is restarted in order",
    "daemon: its disk is slow",
    "daemon: stands still",
    "daemon: took up a hold of its last life",
    "network: a connection goes silent under a request",
    "network: a connection is asked for behind a silent partition",
    "network: a connection is cut after the request was forwarded",
    "network: a connection is cut before the request arrives",
    "network: a connection is refused",
    "network: a connection is refused by a partition",
    "network: a partition holds a message back",
    "network: a partition refuses a message",
    "network: a partition swallows a message",
    "network: a request arrives twice",
    "network: a request is late",
    "network: an answer is late",
    "network: an answer is swallowed",
    "operator: breaks a lease through the daemon",
    "operator: overrides the daemon's policy",
];

fn sample(seeds: u64) -> Campaign {
    Campaign {
        first_seed: 0,
        seed_count: seeds,
        threads: 2,
        mistake: Mistake::Nothing,
        topology: Topology::Daemon,
    }
}

#[test]
fn the_promises_hold_through_a_daemon() {
    let progress = Progress::default();
    if let Some(failure) = run_campaign(sample(SEED_COUNT), &progress) {
        let run = failure.run.unwrap();
        panic!(
            "seed {} broke {:#?}\nrepeat: cargo xtask simulate --daemon --from {} --seeds 1",
            failure.seed, run.judgement.findings, failure.seed
        );
    }
    assert_faults_happened(&progress, EXPECTED_DAEMON_FAULTS);
}

/// The daemon's machine vanishes as the last fault, so every connection to it is dead and looks alive.
/// After the faults that may cost a client one request, not one per pooled connection. These seeds
/// once broke L5.
#[test]
fn dead_connections_of_a_vanished_daemon_are_not_tried_one_by_one() {
    for seed in [2, 45, 118, 159] {
        let mut plan = SimPlan::with_daemon(seed, Mistake::Nothing);
        let daemon = plan.daemon.as_mut().unwrap();
        daemon.odds = FaultOdds::default();
        daemon.routes.fill(Route::Kept);
        plan.odds = FaultOdds::default();
        plan.faults = vec![SimScheduledFault {
            at: plan.horizon - 2_000_000,
            fault: SimFault::Kill { client: plan.clients, lasts: 1_000_000 },
        }];
        let run = run_plan(&plan).unwrap();
        assert!(run.judgement.clean(), "{seed}: {:#?}", run.judgement.findings);
        assert_eq!(run.faults.get("daemon: is gone without a word"), Some(&1), "{seed}");
    }
}

#[test]
fn the_seed_is_the_history_with_a_daemon_too() {
    let differs = find_unrepeatable_seed(sample(12), &Progress::default()).unwrap();
    assert_eq!(differs, None, "this seed ran differently the second time");
}

/// The first plan in which the mistake breaks its promise, and its run.
fn find_failure(mistake: Mistake) -> (SimPlan, SimRun) {
    find_failure_with(mistake, |_| {})
}

/// The same, with a change applied to every plan.
fn find_failure_with(mistake: Mistake, change: impl Fn(&mut SimPlan)) -> (SimPlan, SimRun) {
    for seed in 0..MAX_HISTORIES {
        let mut plan = SimPlan::with_daemon(seed, mistake);
        change(&mut plan);
        let run = run_plan(&plan).unwrap();
        if run.judgement.breaks(mistake.broken_promise()) {
            return (plan, run);
        }
    }
    panic!(
        "{} did not break {} in {MAX_HISTORIES} histories: the net has a hole",
        mistake.name(),
        mistake.broken_promise()
    );
}

#[test]
fn the_unfenced_control_fails_through_a_daemon() {
    let (mut plan, _) = find_failure(Mistake::UnfencedTarget);
    // Without its mistake the same plan is clean.
    plan.mistake = Mistake::Nothing;
    let run = run_plan(&plan).unwrap();
    assert!(run.judgement.clean(), "{:#?}", run.judgement.findings);
}

#[test]
fn a_store_that_forgets_its_fences_is_caught_through_a_daemon() {
    find_failure(Mistake::CounterWithoutFloor);
}

/// A renewal that extended nothing must show in the beliefs of plain HTTP clients too.
#[test]
fn renew_without_comparing_is_caught_with_plain_clients_only() {
    find_failure_with(Mistake::RenewWithoutComparing, |plan| {
        if let Some(daemon) = &mut plan.daemon {
            daemon.routes.fill(Route::Plain);
        }
    });
}

#[test]
fn a_mistake_is_shrunk_with_a_daemon_too() {
    let mistake = Mistake::ReleaseWithoutComparing;
    let (plan, run) = find_failure(mistake);
    // Without the store's own records: fewer faults let more requests arrive.
    let of_clients = |run: &SimRun| run.history.records.iter().filter(|line| line.who != "store").count();
    let lines = of_clients(&run);
    let small = shrink(&plan, run, mistake.broken_promise());
    assert!(small.run.judgement.breaks(mistake.broken_promise()));
    let after = of_clients(&small.run);
    assert!(after < lines, "{lines} lines before, {after} after: {}", small.plan.summary());
    assert!(small.plan.faults.len() <= plan.faults.len() && small.plan.clients <= plan.clients);
    // Running the shrunk plan again gives the same history.
    assert_eq!(run_plan(&small.plan).unwrap().digest(), small.run.digest());
}
