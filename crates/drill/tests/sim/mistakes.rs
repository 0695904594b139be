//! The net must hold: every known mistake, put back, breaks the promise it is about, and is handed back as a short history.

use leasehold_drill::sim::{Mistake, Plan, Run, live, shrink};

/// Histories until a mistake must have been found.
const MOST: u64 = 600;

/// The first history in which the mistake shows.
fn caught(mistake: Mistake) -> (Plan, Run) {
    caught_with(mistake, |_| {})
}

/// The first history in which the mistake shows, after every plan was changed like this.
fn caught_with(mistake: Mistake, change: impl Fn(&mut Plan)) -> (Plan, Run) {
    for seed in 0..MOST {
        let mut plan = Plan::new(seed, mistake);
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

macro_rules! must_break {
    ($($test:ident: $mistake:ident,)*) => {
        $(#[test]
        fn $test() {
            let (plan, _) = caught(Mistake::$mistake);
            println!("{} breaks {} at seed {}", plan.mistake.word(), plan.mistake.breaks(), plan.seed);
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
}

/// Messages that arrive twice can leave something behind through no fault of the client. That excuses what they left, and not the
/// whole history.
#[test]
fn what_is_left_behind_is_found_among_repeated_messages_too() {
    for mistake in [Mistake::PlaceStays, Mistake::NoTombstone] {
        let (plan, run) = caught_with(mistake, |plan| plan.odds.repeat = 250);
        let twice = run.faults.get("store: a message arrives twice").copied();
        assert!(twice > Some(0), "{}: seed {}", mistake.word(), plan.seed);
    }
}

/// Without its mistake, the very plan that showed it is clean: it is the mistake that was found.
#[test]
fn the_same_history_without_the_mistake_is_clean() {
    for mistake in [Mistake::UnfencedTarget, Mistake::ReleaseWithoutComparing] {
        let (mut plan, _) = caught(mistake);
        plan.mistake = Mistake::Nothing;
        let run = live(&plan).unwrap();
        assert!(run.judgement.clean(), "{:#?}", run.judgement.findings);
    }
}

#[test]
fn a_mistake_is_shrunk_to_a_short_history() {
    let mistake = Mistake::ReleaseWithoutComparing;
    let (plan, run) = caught(mistake);
    let lines = run.history.records.len();
    let small = shrink(&plan, run, mistake.breaks());
    let found = &small.run.judgement.findings[0];
    assert_eq!(found.invariant, mistake.breaks());
    // What is left up to the broken promise can be read on one page, and the whole is a fraction of what it was.
    let story = small
        .run
        .history
        .records
        .iter()
        .filter(|line| line.at <= found.at);
    let story = story.count();
    assert!(story <= 60, "{story} lines: {}", small.plan.summary());
    assert!(
        small.run.history.records.len() * 2 < lines,
        "{lines} lines before"
    );
    assert!(small.plan.strikes.len() <= plan.strikes.len() && small.plan.clients <= plan.clients);
    // And it is the same each time.
    assert_eq!(live(&small.plan).unwrap().digest(), small.run.digest());
}
