//! Escalation through the policy book: the articles' example rule, on virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{Change, ChangeKind, OnError, OnFailure, Origin, PolicyBook, Signal};

const RULE: &str = "fallback rate > 0.1/s for 5m and duplicates rising -> fail-closed";

fn at(secs: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(secs)
}

fn book() -> PolicyBook {
    PolicyBook::from_text(&format!("[class.workflow]\nescalate = [\"{RULE}\"]"), "p.toml").unwrap()
}

/// Counts the same signals every second and returns the changes with their time.
fn run_seconds(book: &PolicyBook, secs: std::ops::Range<u64>, signals: &[Signal]) -> Vec<(u64, Change)> {
    let mut told = Vec::new();
    for now in secs {
        for signal in signals {
            book.count_signal("workflow", *signal, at(now));
        }
        told.extend(book.evaluate(at(now)).into_iter().map(|change| (now, change)));
    }
    told
}

fn on_error(book: &PolicyBook, secs: u64) -> OnError {
    book.class("workflow", at(secs)).unwrap().acquire.on_error
}

#[test]
fn a_rule_acts_is_visible_and_reverts() {
    let book = book();
    assert!(run_seconds(&book, 1000..1200, &[Signal::Fallback]).is_empty());
    let told = run_seconds(&book, 1200..1400, &[Signal::Fallback, Signal::Duplicates]);
    assert_eq!(told.len(), 1, "once: {told:?}");
    let (when, change) = &told[0];
    assert!((1300..=1330).contains(when), "after five minutes of it, at {when}");
    assert_eq!(
        change.to_string(),
        format!("class.workflow.acquire.on_error: fail-open -> fail-closed (escalated: {RULE})")
    );
    assert_eq!(on_error(&book, 1400), OnError::FailClosed);
    let shown = book.explain("workflow", at(1400)).unwrap();
    assert!(matches!(&shown.origins["acquire.on_error"], Origin::Escalation { rule, .. } if &**rule == RULE));
    assert!(shown.to_string().contains(RULE), "{shown}");

    // The outage goes on. Nothing falls back any more, but the refused acquires keep the rule active.
    assert!(run_seconds(&book, 1400..2400, &[Signal::Unavailable]).is_empty());
    assert_eq!(on_error(&book, 2400), OnError::FailClosed);

    let told = run_seconds(&book, 2400..3000, &[]);
    assert_eq!(told.len(), 1, "{told:?}");
    let (when, change) = &told[0];
    assert!((2700..=2790).contains(when), "after five quiet minutes, at {when}");
    assert_eq!((change.kind, change.to.as_str()), (ChangeKind::Reverted, "fail-open"));
    assert_eq!(on_error(&book, 3000), OnError::FailOpen);
}

#[test]
fn a_short_burst_does_not_trigger_the_rule() {
    let book = book();
    let burst = [Signal::Fallback, Signal::Fallback, Signal::Fallback, Signal::Duplicates];
    assert!(run_seconds(&book, 1000..1240, &burst).is_empty());
    assert!(run_seconds(&book, 1240..2000, &[]).is_empty());
}

#[test]
fn other_classes_and_signals_do_not_count() {
    let book = book();
    for now in 1000..1700 {
        book.count_signal("scheduler", Signal::Fallback, at(now));
        book.count_signal("no-such-class", Signal::Fallback, at(now));
        book.count_signal("workflow", Signal::Abandoned, at(now));
        book.count_signal("workflow", Signal::Duplicates, at(now));
        assert_eq!(book.evaluate(at(now)), []);
    }
}

#[test]
fn a_fence_rule_also_applies_to_healing() {
    let text = "[class.workflow]\nescalate = [\"not_owned rate > 1/m for 10m -> fence\"]";
    let book = PolicyBook::from_text(text, "p.toml").unwrap();
    let told = run_seconds(&book, 1000..2000, &[Signal::NotOwned]);
    assert_eq!(told.len(), 1, "{told:?}");
    let class = book.class("workflow", at(2000)).unwrap();
    assert_eq!(class.renew.on_failure, OnFailure::Fence);
    assert_eq!(class.acquire.on_heal_conflict, OnFailure::Fence);
    assert_eq!(class.acquire.on_error, OnError::FailOpen, "only what the rule says");
}

#[test]
fn an_operator_override_beats_escalation() {
    let book = book();
    run_seconds(&book, 1000..1200, &[Signal::Fallback]);
    run_seconds(&book, 1200..1400, &[Signal::Fallback, Signal::Duplicates]);
    assert_eq!(on_error(&book, 1400), OnError::FailClosed);
    let hour = Duration::from_secs(3600);
    book.set_override("workflow", "acquire.on_error", "fail-open", "we accept the risk", hour, at(1400))
        .unwrap();
    assert_eq!(on_error(&book, 1400), OnError::FailOpen);
    book.clear_override("workflow", "acquire.on_error", at(1401)).unwrap();
    assert_eq!(on_error(&book, 1401), OnError::FailClosed, "the rule is still in force");
}

#[test]
fn rules_can_be_overridden_and_a_removed_rule_reverts() {
    let book = book();
    run_seconds(&book, 1000..1200, &[Signal::Fallback]);
    run_seconds(&book, 1200..1400, &[Signal::Fallback, Signal::Duplicates]);
    let hour = Duration::from_secs(3600);
    book.set_override("workflow", "escalate", "none", "the rule is too eager", hour, at(1400)).unwrap();
    assert_eq!(on_error(&book, 1400), OnError::FailOpen);
    let told = book.take_ended_changes(at(1400));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].to_string().contains("fail-closed -> fail-open (reverted: the rule is no longer stated"));
}

#[test]
fn a_reload_keeps_the_counts_of_unchanged_rules() {
    let book = book();
    run_seconds(&book, 1000..1200, &[Signal::Fallback]);
    run_seconds(&book, 1200..1300, &[Signal::Fallback, Signal::Duplicates]);
    let text = format!("[class.workflow]\nttl = \"40s\"\nescalate = [\"{RULE}\"]");
    book.reload(&text, "p.toml", at(1300)).unwrap();
    let told = run_seconds(&book, 1300..1331, &[Signal::Fallback, Signal::Duplicates]);
    assert_eq!(told.len(), 1, "five minutes in all, across the reload: {told:?}");
}

#[test]
fn a_reload_adds_and_removes_rules() {
    let book = PolicyBook::builtin();
    let text = format!("[class.workflow]\nescalate = [\"{RULE}\"]");
    book.reload(&text, "p.toml", at(1000)).unwrap();
    run_seconds(&book, 1000..1200, &[Signal::Fallback]);
    run_seconds(&book, 1200..1400, &[Signal::Fallback, Signal::Duplicates]);
    assert_eq!(on_error(&book, 1400), OnError::FailClosed);

    let told = book.reload("", "p.toml", at(1400)).unwrap();
    let message: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        message,
        [
            "class.workflow.acquire.on_error: fail-closed -> fail-open (reloaded: built-in workflow)"
                .to_owned(),
            format!("class.workflow.escalate: {RULE} -> none (reloaded: default)"),
        ]
    );
    assert_eq!(on_error(&book, 1400), OnError::FailOpen);
    assert!(run_seconds(&book, 1400..2000, &[Signal::Fallback, Signal::Duplicates]).is_empty());
}
