//! Each promise, broken in each way that the checker knows of.

use std::collections::BTreeMap;

use leasehold_drill::history::{Answer, Damage, Entry, History, Wrote};
use leasehold_drill::oracle::judge;

use crate::script::{MS, Script};

#[test]
fn i1_two_holders_at_once() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.hold(500, "b", 1, 8);
    script.claim(510, "b", 1, 1400, 8);
    let judged = script.breaks(&["I1"]);
    assert!(
        judged.findings[0].why.contains("390.0 ms"),
        "{:?}",
        judged.findings[0]
    );
}

/// The holder in between must not hide the one that reaches far.
#[test]
fn i1_behind_a_short_hold() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.claim(20, "a", 1, 905, 7);
    script.hold(95, "a", 2, 8);
    script.claim(102, "a", 2, 110, 8);
    script.hold(600, "b", 1, 9);
    script.claim(610, "b", 1, 700, 9);
    assert_eq!(script.breaks(&["I1"]).findings.len(), 2);
}

#[test]
fn i2_a_fence_goes_back() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 9);
    script.release(100, "a", 1);
    script.hold(200, "b", 1, 8);
    script.breaks(&["I2"]);
}

#[test]
fn i2_a_fence_is_issued_twice() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 9);
    script.release(100, "a", 1);
    script.hold(200, "b", 1, 9);
    script.breaks(&["I2"]);
}

#[test]
fn i2_holds_for_leases_taken_again() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 9);
    script.release(100, "a", 1);
    script.ask(200, "b", 1, "loose");
    script.event(205, "b", 1, "fell_back", 0);
    script.answer(206, "b", 1, Answer::LocalOnly, 0);
    script.event(300, "b", 1, "healed", 8);
    script.breaks(&["I2"]);
}

#[test]
fn i3_a_stale_write_is_applied() {
    let mut script = Script::new();
    script.applied(1, "a", 1, 7);
    script.applied(2, "b", 1, 8);
    script.applied(3, "a", 2, 7);
    script.breaks(&["I3"]);
}

#[test]
fn i3_the_ledger_disagrees() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.wrote(20, "a", 1, 1, 7, Wrote::Applied);
    script.wrote(30, "a", 1, 2, 7, Wrote::Refused);
    script.applied(1, "a", 2, 7);
    script.line(8500, "director", Entry::Quiet);
    // Confirmed and not there; refused and there.
    assert_eq!(script.breaks(&["I3"]).findings.len(), 2);
}

#[test]
fn i3_a_write_is_refused_without_a_newer_one() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.wrote(20, "a", 1, 1, 7, Wrote::Refused);
    script.applied(1, "b", 9, 7);
    script.line(8500, "director", Entry::Quiet);
    script.breaks(&["I3"]);
}

/// Also in a class that continues: until the end of its lease nobody else may be granted the name.
#[test]
fn i1_two_at_once_in_a_class_that_continues() {
    let mut script = Script::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 900), 7);
    script.hold_as(500, "b", 1, "loose", 8);
    script.claim_of(510, "b", 1, (5000, 1400), 8);
    script.breaks(&["I1"]);
}

/// A class that continues may act for longer than its lease, and must not take that for proven.
#[test]
fn i5_a_proof_longer_than_the_lease_in_a_class_that_continues() {
    let mut script = Script::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 950), 7);
    script.breaks(&["I5"]);
}

#[test]
fn i5_work_past_the_deadline() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(950, "a", 1, 900, 7);
    script.breaks(&["I5"]);
}

#[test]
fn i5_work_after_being_abandoned() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.event_of(500, "a", 1, "abandoned", 7, None, Some("max_failures"));
    script.claim(600, "a", 1, 900, 7);
    script.breaks(&["I5"]);
}

#[test]
fn i5_a_deadline_counted_from_the_reply() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    // Sent at 300, answered at 500: good until 1200, not until 1400.
    script.event_of(500, "a", 1, "renewed", 7, Some(200), None);
    script.claim(510, "a", 1, 1400, 7);
    script.breaks(&["I5"]);
}

/// A renewal is told a little after it happened, and another thread may have worked on its strength by then; not long.
#[test]
fn i5_a_renewal_that_is_told_late() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(500, "a", 1, 1300, 7);
    script.event_of(515, "a", 1, "renewed", 7, Some(1), None);
    script.release(600, "a", 1);
    script.breaks(&[]);
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(500, "a", 1, 1300, 7);
    script.event_of(550, "a", 1, "renewed", 7, Some(1), None);
    script.breaks(&["I5"]);
}

#[test]
fn i5_a_lease_that_nothing_confirmed() {
    let mut script = Script::new();
    script.ask(0, "a", 1, "strict");
    script.claim(10, "a", 1, 100, 7);
    script.breaks(&["I5"]);
}

#[test]
fn i6_a_lease_outlives_everyone() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.line(8500, "director", Entry::Quiet);
    script.lease(8501, "a", 7);
    script.breaks(&["I6"]);
}

#[test]
fn i6_a_refused_acquire_leaves_a_lease() {
    let mut script = Script::new();
    script.ask(0, "a", 1, "strict");
    script.event(5, "a", 1, "unavailable", 0);
    script.answer(6, "a", 1, Answer::Unavailable, 0);
    script.lease(1000, "a", 7);
    script.breaks(&[]);
    script.lease(1200, "a", 7);
    script.breaks(&["I6"]);
}

#[test]
fn i8_refused_work_runs() {
    let mut script = Script::new();
    script.ask(0, "a", 1, "strict");
    script.answer(6, "a", 1, Answer::Unavailable, 0);
    script.claim(10, "a", 1, 900, 0);
    script.breaks(&["I8"]);
}

#[test]
fn i8_a_fail_closed_class_runs_without_a_lease() {
    let mut script = Script::new();
    script.ask(0, "a", 1, "strict");
    script.event(5, "a", 1, "fell_back", 0);
    script.answer(6, "a", 1, Answer::LocalOnly, 0);
    script.breaks(&["I8"]);
}

#[test]
fn i8_is_judged_by_the_classes_in_force_while_it_was_asked_for() {
    let asked = |changed: u64, answer| {
        let mut script = Script::new();
        script.ask(10, "a", 1, "strict");
        script.event(25, "a", 1, "fell_back", 0);
        script.answer(26, "a", 1, answer, 0);
        let opens = Entry::Class {
            class: "strict".into(),
            ttl: 1000 * MS,
            usable: 900 * MS,
            fail_open: true,
            continues: false,
        };
        script.line(changed, "director", opens);
        script
    };
    asked(20, Answer::LocalOnly).breaks(&[]);
    asked(20, Answer::Unavailable).breaks(&[]);
    // Open only after it was answered, and open all the time.
    asked(30, Answer::LocalOnly).breaks(&["I8"]);
    asked(5, Answer::Unavailable).breaks(&["I8"]);
}

#[test]
fn i8_a_fall_back_is_not_counted_or_not_marked() {
    let mut script = Script::new();
    script.ask(0, "a", 1, "loose");
    script.answer(6, "a", 1, Answer::LocalOnly, 0);
    script.breaks(&["I8"]);
    let mut script = Script::new();
    script.ask(0, "a", 1, "loose");
    script.event(5, "a", 1, "fell_back", 0);
    script.answer(6, "a", 1, Answer::LocalOnly, 0);
    script.claim(10, "a", 1, 900, 7);
    script.breaks(&["I5", "I8"]);
}

#[test]
fn i9_a_result_is_replaced() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.returned(10, "a", 1, 5);
    script.reported(11, "a", 1, None, true);
    script.breaks(&["I9"]);
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.returned(10, "a", 1, 5);
    script.reported(11, "a", 1, Some(6), false);
    script.breaks(&["I9"]);
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.reported(11, "a", 1, None, false);
    script.breaks(&["I9"]);
}

#[test]
fn i10_an_end_is_told_twice() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.release(10, "a", 1);
    script.event(20, "a", 1, "already_lost", 7);
    script.breaks(&["I10"]);
}

#[test]
fn i10_an_event_is_missing_unless_its_client_was_killed() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.event(10, "a", 1, "renewed", 7);
    script.event(20, "a", 1, "renewed", 7);
    script.records.retain(|record| record.at != 10_000_000);
    script.breaks(&["I10"]);
    script.signal(30, "a", "kill");
    script.breaks(&[]);
}

#[test]
fn i10_a_counter_disagrees() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.line(
        100,
        "a",
        Entry::Tally {
            counters: BTreeMap::from([("acquired".into(), 2)]),
        },
    );
    let judged = script.breaks(&["I10"]);
    assert!(
        judged.findings[0].why.contains("is 2, its events are 1"),
        "{judged:?}"
    );
}

/// Damage and gaps never look clean.
#[test]
fn an_incomplete_history_is_not_clean() {
    let mut script = Script::new();
    assert!(script.judged().clean());
    script.line(5, "writer", Entry::Gap { lines: 3 });
    assert!(!script.judged().clean());
    let torn = History {
        records: Vec::new(),
        damage: vec![Damage {
            line: 1,
            why: "torn".into(),
        }],
    };
    assert!(!judge(&torn).clean());
}
