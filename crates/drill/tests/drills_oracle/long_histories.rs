//! Long histories. Work is counted, not timed: a constant number of items per record.

use leasehold_drill::history::{HistoryEntry, RecordedOutcome};

use crate::script::HistoryScript;

/// Hand-overs of one name between fifty clients, about ten records each.
fn hand_overs(holds: u64) -> HistoryScript {
    let mut script = HistoryScript::new();
    for number in 0..holds {
        let (at, who, fence) = (number * 100, format!("w{}", number % 50), 1000 + number);
        let attempt = number / 50 + 1;
        script.hold(at, &who, attempt, fence);
        script.claim(at + 10, &who, attempt, at + 900, fence);
        script.event_of(at + 30, &who, attempt, "renewed", fence, Some(5), None);
        script.claim(at + 40, &who, attempt, at + 920, fence);
        script.returned(at + 50, &who, attempt, number);
        script.reported(at + 51, &who, attempt, Some(number), false);
        script.release(at + 60, &who, attempt);
    }
    script
}

// The most items that the oracle may examine per record, over all its passes.
const MAX_WORK_PER_RECORD: u64 = 6;

fn assert_work_is_bounded(script: &HistoryScript) {
    let judged = script.judgement();
    let lines = u64::try_from(script.records.len()).unwrap_or(u64::MAX);
    assert!(judged.work_count <= MAX_WORK_PER_RECORD * lines, "{} looks at {lines} lines", judged.work_count);
    assert!(judged.work_count >= lines, "every line is looked at: {}", judged.work_count);
}

#[test]
fn a_million_records() {
    let mut script = hand_overs(100_000);
    assert!(script.records.len() > 1_000_000, "{}", script.records.len());
    let judged = script.assert_broken(&[]);
    assert_eq!(judged.grants, 100_000);
    assert_work_is_bounded(&script);
    // One holder in the middle claims the name while another one works.
    script.hold(500_010, "late", 1, 999);
    script.claim(500_020, "late", 1, 500_030, 999);
    script.assert_broken(&["I1", "I2"]);
    assert_work_is_bounded(&script);
}

/// Histories that would be quadratic with a search: late records of early attempts, leases found again
/// and again, and holds that all overlap.
#[test]
fn awkward_histories_need_no_more_work() {
    const ATTEMPT_COUNT: u64 = 20_000;
    let mut late = HistoryScript::new();
    for attempt in 1..=ATTEMPT_COUNT {
        late.hold(attempt * 10, "w", attempt, 1000 + attempt);
        late.release(attempt * 10 + 5, "w", attempt);
    }
    // Every write is answered after all acquires have ended, the first attempt's first.
    for attempt in 1..=ATTEMPT_COUNT {
        late.returned(ATTEMPT_COUNT * 10 + attempt, "w", attempt, attempt);
    }
    assert_work_is_bounded(&late);

    let mut leases = HistoryScript::new();
    for attempt in 1..=ATTEMPT_COUNT {
        leases.begin_acquire(attempt * 10, "w", attempt, "strict");
        leases.end_acquire(attempt * 10 + 3, "w", attempt, RecordedOutcome::Busy, 0);
        leases.lease(attempt * 10 + 5, "w", 7);
    }
    assert_work_is_bounded(&leases);

    let mut overlaps = HistoryScript::new();
    for number in 0..ATTEMPT_COUNT {
        let who = format!("w{number}");
        overlaps.hold(number, &who, 1, 1000 + number);
        overlaps.claim(number + 1, &who, 1, number + 900, 1000 + number);
    }
    assert_work_is_bounded(&overlaps);
}

/// A class that is recorded before each acquire, the same or another each time.
#[test]
fn repeated_class_records_need_no_more_work() {
    const ATTEMPT_COUNT: u64 = 20_000;
    let mut same = HistoryScript::new();
    let mut changing = HistoryScript::new();
    for attempt in 1..=ATTEMPT_COUNT {
        same.class(attempt * 10, "w", "own", 1000);
        same.begin_acquire(attempt * 10, "w", attempt, "own");
        changing.class(attempt * 10, "w", "own", 1000 + attempt % 2);
        changing.begin_acquire(attempt * 10, "w", attempt, "own");
        changing.end_acquire(attempt * 10 + 3, "w", attempt, RecordedOutcome::Busy, 0);
    }
    assert_work_is_bounded(&same);
    assert_work_is_bounded(&changing);
}

/// All clients queue, and the last is served first.
#[test]
fn a_queue_served_backwards_needs_no_more_work() {
    const CLIENT_COUNT: u64 = 20_000;
    let mut script = HistoryScript::new();
    script.push_record(1, "director", HistoryEntry::Calm);
    for number in 0..CLIENT_COUNT {
        script.begin_acquire(10 + number, &format!("w{number}"), 1, "strict");
    }
    for number in (0..CLIENT_COUNT).rev() {
        let (at, who) = (10 + 2 * CLIENT_COUNT - number, format!("w{number}"));
        script.event(at, &who, 1, "acquired", 1000 + CLIENT_COUNT - number);
        script.end_acquire(at, &who, 1, RecordedOutcome::Held, 1000 + CLIENT_COUNT - number);
    }
    assert_work_is_bounded(&script);
    assert!(script.judgement().breaks("L6"));
}
