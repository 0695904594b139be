//! What a verdict is worth: what a history lacks, and which promises it can show.

use leasehold_drill::history::{History, HistoryEntry, RecordedOutcome, WriteOutcome, read};
use leasehold_drill::oracle::judge;

use crate::script::HistoryScript;

fn assert_missing(script: &HistoryScript, what: &str) {
    let judged = script.assert_broken(&[]);
    assert!(!judged.clean(), "{judged:?}");
    assert!(judged.incomplete);
    let why = judged.missing.unwrap_or_default();
    assert!(why.contains(what), "{why}");
}

/// Old histories recorded only that a claim is proven, not until when, so they cannot be judged.
#[test]
fn a_claim_of_an_older_kind_is_not_clean() {
    let old = r#"{"at":7,"who":"w","what":"claimed","attempt":3,"until":9,"proven":true}"#;
    let history = read(old.as_bytes()).unwrap();
    let judged = judge(&history);
    assert!(judged.incomplete && !judged.clean(), "{judged:?}");
    let why = judged.missing.unwrap_or_default();
    assert!(why.contains("line 1") && why.contains("boolean"), "{why}");
}

#[test]
fn records_without_their_acquire_make_a_history_incomplete() {
    let mut script = HistoryScript::new();
    script.claim(10, "a", 1, 900, 7);
    assert_missing(&script, "acquire 1 of a was never asked for");
    let mut script = HistoryScript::new();
    script.end_acquire(10, "a", 1, RecordedOutcome::Held, 7);
    assert_missing(&script, "acquire 1 of a");
    let mut script = HistoryScript::new();
    script.written(10, "a", 1, 1, 7, WriteOutcome::Applied);
    assert_missing(&script, "acquire 1 of a");
    let mut script = HistoryScript::new();
    script.returned(10, "a", 2, 1);
    assert_missing(&script, "acquire 2 of a");
}

#[test]
fn an_acquire_without_the_terms_of_its_class_is_not_judged() {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "unheard-of", 7);
    script.release(100, "a", 1);
    assert_missing(&script, "class unheard-of");
}

#[test]
fn a_gap_says_how_much_is_missing() {
    let mut script = HistoryScript::new();
    script.push_record(5, "writer", HistoryEntry::Gap { lines: 3 });
    assert_missing(&script, "3 lines");
}

/// Queue order and leftovers are judged only if the history has a calm.
#[test]
fn without_a_calm_some_promises_are_not_judged() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.release(100, "a", 1);
    let judged = script.assert_broken(&[]).judged_invariants;
    assert_eq!(
        judged,
        ["I1", "I2", "I3", "I5", "I6", "I8", "I9", "I10", "L4"],
        "no drill with real processes judges more"
    );
    script.push_record(200, "director", HistoryEntry::Calm);
    let judged = script.assert_broken(&[]).judged_invariants;
    assert!(["L2", "L3", "L5", "L6"].iter().all(|number| judged.contains(number)));
    let kind = "undos".to_owned();
    let mut script = HistoryScript::new();
    script.push_record(200, "director", HistoryEntry::Remains { kind, count: 0 });
    let judged = script.assert_broken(&[]).judged_invariants;
    assert!(judged.contains(&"L3") && !judged.contains(&"L5"), "{judged:?}");
}

#[test]
fn a_whole_history_lacks_nothing() {
    let judged = judge(&History::default());
    assert_eq!(judged.missing, None);
    assert!(judged.clean());
}
