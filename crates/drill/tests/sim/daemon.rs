//! The real daemon between the real clients and their store: the promises hold, every kind of fault happens, a history repeats
//! from its seed, and known mistakes are found and shrunk.
//!
//! Longer runs: `leasehold drill simulate --daemon --seeds 2000`.

use leasehold_drill::sim::{
    Campaign, Mistake, Odds, Plan, Progress, Route, Run, Strike, What, World, campaign, live, replay, shrink,
};

use crate::faults::happened;

/// A slice: the long runs are in the ledger.
const SEEDS: u64 = 100;
/// Histories until a mistake must have been found.
const MOST: u64 = 60;

/// What must happen through a daemon as well.
const HAPPENS: &[&str] = &[
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

fn slice(seeds: u64) -> Campaign {
    Campaign {
        from: 0,
        seeds,
        threads: 2,
        mistake: Mistake::Nothing,
        world: World::Daemon,
    }
}

#[test]
fn the_promises_hold_through_a_daemon() {
    let progress = Progress::default();
    if let Some(failure) = campaign(slice(SEEDS), &progress) {
        let run = failure.run.unwrap();
        panic!(
            "seed {} broke {:#?}\nrepeat: leasehold drill simulate --daemon --from {} --seeds 1",
            failure.seed, run.judgement.findings, failure.seed
        );
    }
    happened(&progress, HAPPENS);
}

/// Its machine vanishes without a word as the last fault of all: every connection to it is dead and looks alive. Once nothing is
/// wrong any more that costs a client one question, not one for each connection that it keeps (seeds that once broke L5).
#[test]
fn dead_connections_of_a_vanished_daemon_are_not_tried_one_by_one() {
    for seed in [2, 45, 118, 159] {
        let mut plan = Plan::with_daemon(seed, Mistake::Nothing);
        let daemon = plan.daemon.as_mut().unwrap();
        daemon.odds = Odds::default();
        daemon.routes.fill(Route::Kept);
        plan.odds = Odds::default();
        plan.strikes = vec![Strike {
            at: plan.horizon - 2_000_000,
            what: What::Kill {
                client: plan.clients,
                lasts: 1_000_000,
            },
        }];
        let run = live(&plan).unwrap();
        assert!(run.judgement.clean(), "{seed}: {:#?}", run.judgement.findings);
        assert_eq!(
            run.faults.get("daemon: is gone without a word"),
            Some(&1),
            "{seed}"
        );
    }
}

#[test]
fn the_seed_is_the_history_with_a_daemon_too() {
    let differs = replay(slice(12), &Progress::default()).unwrap();
    assert_eq!(differs, None, "this seed ran differently the second time");
}

/// The first history in which the mistake shows.
fn caught(mistake: Mistake) -> (Plan, Run) {
    caught_with(mistake, |_| {})
}

/// The first history in which the mistake shows, after every plan was changed like this.
fn caught_with(mistake: Mistake, change: impl Fn(&mut Plan)) -> (Plan, Run) {
    for seed in 0..MOST {
        let mut plan = Plan::with_daemon(seed, mistake);
        change(&mut plan);
        let run = live(&plan).unwrap();
        if run.judgement.breaks(mistake.breaks()) {
            return (plan, run);
        }
    }
    panic!(
        "{} did not break {} in {MOST} histories: the net has a hole",
        mistake.word(),
        mistake.breaks()
    );
}

#[test]
fn the_unfenced_control_fails_through_a_daemon() {
    let (mut plan, _) = caught(Mistake::UnfencedTarget);
    // Without its mistake the very same plan is clean.
    plan.mistake = Mistake::Nothing;
    let run = live(&plan).unwrap();
    assert!(run.judgement.clean(), "{:#?}", run.judgement.findings);
}

#[test]
fn a_store_that_forgets_its_fences_is_caught_through_a_daemon() {
    caught(Mistake::CounterWithoutFloor);
}

/// A renewal that extended nothing is seen in what a client with nothing but HTTP believes, not only in the library's.
#[test]
fn renew_without_comparing_is_caught_with_plain_clients_only() {
    caught_with(Mistake::RenewWithoutComparing, |plan| {
        if let Some(daemon) = &mut plan.daemon {
            daemon.routes.fill(Route::Plain);
        }
    });
}

#[test]
fn a_mistake_is_shrunk_with_a_daemon_too() {
    let mistake = Mistake::ReleaseWithoutComparing;
    let (plan, run) = caught(mistake);
    let lines = run.history.records.len();
    let small = shrink(&plan, run, mistake.breaks());
    assert!(small.run.judgement.breaks(mistake.breaks()));
    assert!(
        small.run.history.records.len() < lines,
        "{lines} lines before, {} after: {}",
        small.run.history.records.len(),
        small.plan.summary()
    );
    assert!(small.plan.strikes.len() <= plan.strikes.len() && small.plan.clients <= plan.clients);
    // And it is the same each time.
    assert_eq!(live(&small.plan).unwrap().digest(), small.run.digest());
}
