//! What a verdict is worth: what a history lacks, and which promises it can show at all.

use leasehold_drill::history::{Answer, Entry, History, Wrote, read};
use leasehold_drill::oracle::judge;

use crate::script::Script;

fn lacks(script: &Script, what: &str) {
    let judged = script.breaks(&[]);
    assert!(!judged.clean(), "{judged:?}");
    assert!(judged.incomplete);
    let why = judged.lacks.unwrap_or_default();
    assert!(why.contains(what), "{why}");
}

/// Histories once said only that something is proven, not until when: nobody can judge that.
#[test]
fn a_claim_of_an_older_kind_is_not_clean() {
    let old = r#"{"at":7,"who":"w","what":"claimed","attempt":3,"until":9,"proven":true}"#;
    let history = read(old.as_bytes()).unwrap();
    let judged = judge(&history);
    assert!(judged.incomplete && !judged.clean(), "{judged:?}");
    let why = judged.lacks.unwrap_or_default();
    assert!(why.contains("line 1") && why.contains("boolean"), "{why}");
}

#[test]
fn lines_without_their_acquire_are_missed() {
    let mut script = Script::new();
    script.claim(10, "a", 1, 900, 7);
    lacks(&script, "acquire 1 of a was never asked for");
    let mut script = Script::new();
    script.answer(10, "a", 1, Answer::Held, 7);
    lacks(&script, "acquire 1 of a");
    let mut script = Script::new();
    script.wrote(10, "a", 1, 1, 7, Wrote::Applied);
    lacks(&script, "acquire 1 of a");
    let mut script = Script::new();
    script.returned(10, "a", 2, 1);
    lacks(&script, "acquire 2 of a");
}

#[test]
fn an_acquire_without_the_terms_of_its_class_is_not_judged() {
    let mut script = Script::new();
    script.hold_as(0, "a", 1, "unheard-of", 7);
    script.release(100, "a", 1);
    lacks(&script, "class unheard-of");
}

#[test]
fn a_gap_says_how_much_is_missing() {
    let mut script = Script::new();
    script.line(5, "writer", Entry::Gap { lines: 3 });
    lacks(&script, "3 lines");
}

/// Waiting in line and what is left behind are judged only where a history says that it has become calm.
#[test]
fn without_a_calm_some_promises_are_not_judged() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.release(100, "a", 1);
    let judged = script.breaks(&[]).judged;
    assert_eq!(
        judged,
        ["I1", "I2", "I3", "I5", "I6", "I8", "I9", "I10", "L4"],
        "no drill with real processes judges more"
    );
    script.line(200, "director", Entry::Calm);
    let judged = script.breaks(&[]).judged;
    assert!(
        ["L2", "L3", "L5", "L6"]
            .iter()
            .all(|number| judged.contains(number))
    );
    let kind = "undos".to_owned();
    let mut script = Script::new();
    script.line(200, "director", Entry::Remains { kind, count: 0 });
    let judged = script.breaks(&[]).judged;
    assert!(judged.contains(&"L3") && !judged.contains(&"L5"), "{judged:?}");
}

#[test]
fn a_whole_history_lacks_nothing() {
    let judged = judge(&History::default());
    assert_eq!(judged.lacks, None);
    assert!(judged.clean());
}
