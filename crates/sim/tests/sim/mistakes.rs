//! Every known mistake, reintroduced, breaks its promise and is shrunk to a short history.

use leasehold_sim::{Mistake, SimPlan, SimRun, run_plan, shrink};

// Histories within which a mistake must be found.
const MAX_HISTORIES: u64 = 600;

/// The first plan in which the mistake breaks its promise, and its run.
fn find_failure(mistake: Mistake) -> (SimPlan, SimRun) {
    find_failure_with(mistake, |_| {})
}

/// The same, with a change applied to every plan.
fn find_failure_with(mistake: Mistake, change: impl Fn(&mut SimPlan)) -> (SimPlan, SimRun) {
    for seed in 0..MAX_HISTORIES {
        let mut plan = SimPlan::new(seed, mistake);
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

macro_rules! must_break {
    ($($test:ident: $mistake:ident,)*) => {
        $(#[test]
        fn $test() {
            let (plan, _) = find_failure(Mistake::$mistake);
            println!("{} breaks {} at seed {}", plan.mistake.name(), plan.mistake.broken_promise(), plan.seed);
        })*

        #[test]
        fn every_mistake_has_its_test() {
            let tested = [$(Mistake::$mistake),*];
            assert!(Mistake::ALL.iter().all(|mistake| tested.contains(mistake)));
            assert_eq!(Mistake::ALL.len(), tested.len());
        }
    };
}

must_break! {
    the_unfenced_control_fails: UnfencedTarget,
    release_without_comparing_is_caught: ReleaseWithoutComparing,
    renew_without_comparing_is_caught: RenewWithoutComparing,
    a_counter_without_floor_is_caught: CounterWithoutFloor,
    a_repeated_fence_is_caught: FenceRepeated,
    a_missing_tombstone_is_caught: NoTombstone,
    a_short_lease_is_caught: ShortLease,
    silence_taken_for_a_no_is_caught: SilenceIsANo,
    a_clock_that_stops_is_caught: ClockStopsWithProcess,
    a_stepped_clock_is_caught: SteppedClock,
    cached_validity_is_caught: CachedValidity,
    a_dead_waiter_that_keeps_the_lease_is_caught: DeadWaiterKeepsLease,
    last_come_first_served_is_caught: LastComeFirstServed,
    a_panic_in_a_task_that_nobody_waits_for_is_caught: PanicsWhenRefused,
    an_undo_that_renews_is_caught: UndoRenews,
    a_place_that_stays_is_caught: PlaceStays,
    a_renewal_that_revives_is_caught: RenewRevives,
    a_denied_release_is_caught: ReleaseDenied,
    not_owned_taken_for_an_error_is_caught: NotOwnedIsAnError,
    clocks_beyond_the_margin_are_caught: FastClocks,
}

/// A repeated message can leave something behind without a fault of the client. That excuses what it
/// left, not the whole history.
#[test]
fn leftovers_are_found_among_repeated_messages_too() {
    for mistake in [Mistake::PlaceStays, Mistake::NoTombstone] {
        let (plan, run) = find_failure_with(mistake, |plan| plan.odds.repeat = 250);
        let twice = run.faults.get("store: a message arrives twice").copied();
        assert!(twice > Some(0), "{}: seed {}", mistake.name(), plan.seed);
    }
}

/// Without its mistake the same plan is clean, so the mistake alone was found.
#[test]
fn the_same_history_without_the_mistake_is_clean() {
    for mistake in [Mistake::UnfencedTarget, Mistake::ReleaseWithoutComparing] {
        let (mut plan, _) = find_failure(mistake);
        plan.mistake = Mistake::Nothing;
        let run = run_plan(&plan).unwrap();
        assert!(run.judgement.clean(), "{:#?}", run.judgement.findings);
    }
}

#[test]
fn a_mistake_is_shrunk_to_a_short_history() {
    let mistake = Mistake::ReleaseWithoutComparing;
    let (plan, run) = find_failure(mistake);
    let lines = run.history.records.len();
    let small = shrink(&plan, run, mistake.broken_promise());
    // The store's own mistake (I4) shows first.
    let mut findings = small.run.judgement.findings.iter();
    let found = findings.find(|found| found.invariant == mistake.broken_promise()).unwrap();
    // The records up to the broken promise fit on one page, and the whole is a fraction of before.
    let of_clients = small.run.history.records.iter().filter(|line| line.who != "store");
    let story = of_clients.filter(|line| line.at <= found.at);
    let story = story.count();
    assert!(story <= 60, "{story} lines: {}", small.plan.summary());
    assert!(small.run.history.records.len() * 2 < lines, "{lines} lines before");
    assert!(small.plan.faults.len() <= plan.faults.len() && small.plan.clients <= plan.clients);
    // Running the shrunk plan again gives the same history.
    assert_eq!(run_plan(&small.plan).unwrap().digest(), small.run.digest());
}
