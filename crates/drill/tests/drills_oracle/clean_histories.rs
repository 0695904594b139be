//! Histories in which every promise holds, close to breaking.

use std::collections::BTreeMap;

use leasehold_core::Fence;
use leasehold_drill::history::{HistoryEntry, RecordedOutcome, WriteOutcome};

use crate::script::{HistoryScript, MS};

/// Two holds, one after the other: renewed, written, released.
#[test]
fn an_ordinary_hand_over() {
    let mut script = HistoryScript::new();
    script.hold(10, "a", 1, 7);
    script.claim(20, "a", 1, 910, 7);
    script.event_of(400, "a", 1, "renewed", 7, Some(20), None);
    script.claim(500, "a", 1, 1280, 7);
    script.written(510, "a", 1, 1, 7, WriteOutcome::Applied);
    script.returned(520, "a", 1, 5);
    script.reported(521, "a", 1, Some(5), false);
    script.release(600, "a", 1);
    script.hold(590, "b", 1, 8);
    script.claim(600, "b", 1, 1400, 8);
    script.written(610, "b", 1, 1, 8, WriteOutcome::Applied);
    script.written(620, "a", 1, 2, 7, WriteOutcome::Refused);
    script.applied(1, "a", 1, 7);
    script.applied(2, "b", 1, 8);
    script.push_record(
        8000,
        "a",
        HistoryEntry::Tally {
            counters: BTreeMap::from([("acquired".into(), 1), ("renewed".into(), 1), ("busy".into(), 0)]),
        },
    );
    script.push_record(8500, "director", HistoryEntry::Quiet);
    assert!(script.assert_broken(&[]).clean());
}

/// A killed holder's deadline passes before the next client is granted the name.
#[test]
fn a_takeover_after_a_kill() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.signal(100, "a", "kill");
    script.hold(990, "b", 1, 8);
    script.claim(1000, "b", 1, 1890, 8);
    script.assert_broken(&[]);
}

/// After a data loss the name may be granted again, but fences must still grow.
#[test]
fn a_store_that_forgets() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.push_record(100, "director", HistoryEntry::Forgot);
    script.hold(110, "b", 1, 8);
    script.claim(120, "b", 1, 1000, 8);
    script.assert_broken(&[]);
}

/// An acquire without an answer may have been granted at any time after it was sent, so its lease is
/// excused.
#[test]
fn an_unknown_acquire_excuses_its_lease() {
    let mut script = HistoryScript::new();
    script.begin_acquire(10, "a", 1, "strict");
    script.lease(3000, "a", 7);
    script.assert_broken(&[]);
}

/// Two requests overlap in time, so either may have been granted first.
#[test]
fn overlapping_acquires_may_be_granted_in_any_order() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "strict");
    script.hold(10, "b", 1, 9);
    script.release(20, "b", 1);
    script.event(30, "a", 1, "acquired", 7);
    script.end_acquire(31, "a", 1, RecordedOutcome::Held, 7);
    script.assert_broken(&[]);
}

/// A fail-open class works without a lease and is marked. It continues past a deadline, and its work
/// there is no claim.
#[test]
fn a_class_that_continues() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "loose");
    script.event(5, "a", 1, "fell_back", 0);
    script.end_acquire(6, "a", 1, RecordedOutcome::LocalOnly, 0);
    script.claim(10, "a", 1, u64::MAX / MS, 0);
    script.hold(20, "b", 1, 7);
    script.claim(30, "b", 1, 900, 7);
    script.claim(40, "a", 1, u64::MAX / MS, 0);
    script.assert_broken(&[]);
}

/// A hold works on past its lease without a proof. The next holder of the name is the only proven one.
#[test]
fn a_class_that_continues_past_its_lease() {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 900), 7);
    script.event(900, "a", 1, "unproven", 7);
    script.hold(1010, "b", 1, 8);
    script.claim(1020, "b", 1, 1900, 8);
    script.push_record(
        1030,
        "a",
        HistoryEntry::Claimed { attempt: 1, until: 5000 * MS, proven_until: None, fence: Fence::new(7) },
    );
    script.assert_broken(&[]);
}

/// The loss is reported together with the result that the work had by then.
#[test]
fn a_loss_carries_the_result() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.returned(800, "a", 1, 5);
    script.event_of(890, "a", 1, "abandoned", 7, None, Some("deadline"));
    script.reported(891, "a", 1, Some(5), true);
    script.assert_broken(&[]);
}
