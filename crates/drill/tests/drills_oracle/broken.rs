//! Each promise, broken in each way that the oracle knows.

use std::collections::BTreeMap;

use leasehold_drill::history::{DamagedLine, History, HistoryEntry, RecordedOutcome, WriteOutcome};
use leasehold_drill::oracle::judge;

use crate::script::{HistoryScript, MS};

#[test]
fn i1_two_holders_at_once() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.hold(500, "b", 1, 8);
    script.claim(510, "b", 1, 1400, 8);
    let judged = script.assert_broken(&["I1"]);
    assert!(judged.findings[0].why.contains("390.0 ms"), "{:?}", judged.findings[0]);
}

/// A short hold in between must not hide the one that reaches further.
#[test]
fn i1_behind_a_short_hold() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.claim(20, "a", 1, 905, 7);
    script.hold(95, "a", 2, 8);
    script.claim(102, "a", 2, 110, 8);
    script.hold(600, "b", 1, 9);
    script.claim(610, "b", 1, 700, 9);
    assert_eq!(script.assert_broken(&["I1"]).findings.len(), 2);
}

#[test]
fn i2_a_fence_goes_back() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 9);
    script.release(100, "a", 1);
    script.hold(200, "b", 1, 8);
    script.assert_broken(&["I2"]);
}

#[test]
fn i2_a_fence_is_issued_twice() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 9);
    script.release(100, "a", 1);
    script.hold(200, "b", 1, 9);
    script.assert_broken(&["I2"]);
}

#[test]
fn i2_holds_for_leases_taken_again() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 9);
    script.release(100, "a", 1);
    script.begin_acquire(200, "b", 1, "loose");
    script.event(205, "b", 1, "fell_back", 0);
    script.end_acquire(206, "b", 1, RecordedOutcome::LocalOnly, 0);
    script.event(300, "b", 1, "healed", 8);
    script.assert_broken(&["I2"]);
}

#[test]
fn i3_a_stale_write_is_applied() {
    let mut script = HistoryScript::new();
    script.applied(1, "a", 1, 7);
    script.applied(2, "b", 1, 8);
    script.applied(3, "a", 2, 7);
    script.assert_broken(&["I3"]);
}

#[test]
fn i3_the_ledger_disagrees() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.written(20, "a", 1, 1, 7, WriteOutcome::Applied);
    script.written(30, "a", 1, 2, 7, WriteOutcome::Refused);
    script.applied(1, "a", 2, 7);
    script.push_record(8500, "director", HistoryEntry::Quiet);
    // Confirmed and not applied; refused and applied.
    assert_eq!(script.assert_broken(&["I3"]).findings.len(), 2);
}

#[test]
fn i3_a_write_is_refused_without_a_newer_one() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.written(20, "a", 1, 1, 7, WriteOutcome::Refused);
    script.applied(1, "b", 9, 7);
    script.push_record(8500, "director", HistoryEntry::Quiet);
    script.assert_broken(&["I3"]);
}

/// Also in a class that continues: no other client may be granted the name before the lease ends.
#[test]
fn i1_two_at_once_in_a_class_that_continues() {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 900), 7);
    script.hold_as(500, "b", 1, "loose", 8);
    script.claim_of(510, "b", 1, (5000, 1400), 8);
    script.assert_broken(&["I1"]);
}

/// A class that continues may work past its lease, and must not take that for proven.
#[test]
fn i5_a_proof_longer_than_the_lease_in_a_class_that_continues() {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 950), 7);
    script.assert_broken(&["I5"]);
}

#[test]
fn i5_work_past_the_deadline() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(950, "a", 1, 900, 7);
    script.assert_broken(&["I5"]);
}

#[test]
fn i5_work_after_being_abandoned() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.event_of(500, "a", 1, "abandoned", 7, None, Some("max_failures"));
    script.claim(600, "a", 1, 900, 7);
    script.assert_broken(&["I5"]);
}

#[test]
fn i5_a_deadline_counted_from_the_reply() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    // Sent at 300, answered at 500: good until 1200, not until 1400.
    script.event_of(500, "a", 1, "renewed", 7, Some(200), None);
    script.claim(510, "a", 1, 1400, 7);
    script.assert_broken(&["I5"]);
}

/// A renewal is recorded a little after it happened, when another thread may already work under it.
/// The delay is bounded.
#[test]
fn i5_a_renewal_that_is_recorded_late() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(500, "a", 1, 1300, 7);
    script.event_of(515, "a", 1, "renewed", 7, Some(1), None);
    script.release(600, "a", 1);
    script.assert_broken(&[]);
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(500, "a", 1, 1300, 7);
    script.event_of(550, "a", 1, "renewed", 7, Some(1), None);
    script.assert_broken(&["I5"]);
}

#[test]
fn i5_a_lease_that_nothing_confirmed() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "strict");
    script.claim(10, "a", 1, 100, 7);
    script.assert_broken(&["I5"]);
}

#[test]
fn i6_a_lease_outlives_every_client() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.push_record(8500, "director", HistoryEntry::Quiet);
    script.lease(8501, "a", 7);
    script.assert_broken(&["I6"]);
}

#[test]
fn i6_a_refused_acquire_leaves_a_lease() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "strict");
    script.event(5, "a", 1, "unavailable", 0);
    script.end_acquire(6, "a", 1, RecordedOutcome::Unavailable, 0);
    script.lease(1000, "a", 7);
    script.assert_broken(&[]);
    script.lease(1200, "a", 7);
    script.assert_broken(&["I6"]);
}

#[test]
fn i8_refused_work_runs() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "strict");
    script.end_acquire(6, "a", 1, RecordedOutcome::Unavailable, 0);
    script.claim(10, "a", 1, 900, 0);
    script.assert_broken(&["I8"]);
}

#[test]
fn i8_a_fail_closed_class_runs_without_a_lease() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "strict");
    script.event(5, "a", 1, "fell_back", 0);
    script.end_acquire(6, "a", 1, RecordedOutcome::LocalOnly, 0);
    script.assert_broken(&["I8"]);
}

#[test]
fn i8_is_judged_by_the_classes_in_force_during_the_acquire() {
    let asked = |changed: u64, answer| {
        let mut script = HistoryScript::new();
        script.begin_acquire(10, "a", 1, "strict");
        script.event(25, "a", 1, "fell_back", 0);
        script.end_acquire(26, "a", 1, answer, 0);
        let opens = HistoryEntry::Class {
            class: "strict".into(),
            ttl: 1000 * MS,
            usable: 900 * MS,
            fail_open: true,
            continues: false,
        };
        script.push_record(changed, "director", opens);
        script
    };
    asked(20, RecordedOutcome::LocalOnly).assert_broken(&[]);
    asked(20, RecordedOutcome::Unavailable).assert_broken(&[]);
    // Fail-open only after the answer; and fail-open all the time.
    asked(30, RecordedOutcome::LocalOnly).assert_broken(&["I8"]);
    asked(5, RecordedOutcome::Unavailable).assert_broken(&["I8"]);
}

#[test]
fn i8_a_fall_back_is_not_counted_or_not_marked() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "loose");
    script.end_acquire(6, "a", 1, RecordedOutcome::LocalOnly, 0);
    script.assert_broken(&["I8"]);
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "loose");
    script.event(5, "a", 1, "fell_back", 0);
    script.end_acquire(6, "a", 1, RecordedOutcome::LocalOnly, 0);
    script.claim(10, "a", 1, 900, 7);
    script.assert_broken(&["I5", "I8"]);
}

#[test]
fn i9_a_result_is_replaced() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.returned(10, "a", 1, 5);
    script.reported(11, "a", 1, None, true);
    script.assert_broken(&["I9"]);
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.returned(10, "a", 1, 5);
    script.reported(11, "a", 1, Some(6), false);
    script.assert_broken(&["I9"]);
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.reported(11, "a", 1, None, false);
    script.assert_broken(&["I9"]);
}

#[test]
fn i10_an_end_is_recorded_twice() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.release(10, "a", 1);
    script.event(20, "a", 1, "already_lost", 7);
    script.assert_broken(&["I10"]);
}

#[test]
fn i10_an_event_is_missing_unless_its_client_was_killed() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.event(10, "a", 1, "renewed", 7);
    script.event(20, "a", 1, "renewed", 7);
    script.records.retain(|record| record.at != 10_000_000);
    script.assert_broken(&["I10"]);
    script.signal(30, "a", "kill");
    script.assert_broken(&[]);
}

#[test]
fn i10_a_counter_disagrees() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.push_record(100, "a", HistoryEntry::Tally { counters: BTreeMap::from([("acquired".into(), 2)]) });
    let judged = script.assert_broken(&["I10"]);
    assert!(judged.findings[0].why.contains("is 2, its events are 1"), "{judged:?}");
}

/// Damage and gaps are never clean.
#[test]
fn an_incomplete_history_is_not_clean() {
    let mut script = HistoryScript::new();
    assert!(script.judgement().clean());
    script.push_record(5, "writer", HistoryEntry::Gap { lines: 3 });
    assert!(!script.judgement().clean());
    let torn = History { records: Vec::new(), damage: vec![DamagedLine { line: 1, why: "torn".into() }] };
    assert!(!judge(&torn).clean());
}
