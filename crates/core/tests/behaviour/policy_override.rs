//! Overrides: any field, for a limited time, with a reason. They end by themselves and never make a class invalid.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{ChangeKind, MAX_OVERRIDE_DURATION, OnError, OnFailure, Origin, PolicyBook};

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[test]
fn an_override_acts_at_once_is_visible_and_reverts_on_time() {
    let book = PolicyBook::builtin();
    let change = book
        .set_override("workflow", "acquire.on_error", "fail-closed", "redis is flapping", minutes(30), NOW)
        .unwrap();
    assert_eq!(
        change.to_string(),
        "class.workflow.acquire.on_error: fail-open -> fail-closed (set: redis is flapping)"
    );
    assert_eq!((change.kind, change.until), (ChangeKind::Set, Some(NOW + minutes(30))));

    let on_error = |at| book.class("workflow", at).unwrap().acquire.on_error;
    let last = NOW + minutes(30) - Duration::from_nanos(1);
    assert_eq!((on_error(NOW), on_error(last)), (OnError::FailClosed, OnError::FailClosed));
    assert_eq!(on_error(NOW + minutes(30)), OnError::FailOpen, "nobody had to do anything");

    let shown = book.explain("workflow", NOW + minutes(10)).unwrap();
    assert!(shown.to_string().contains("override for another 20m: redis is flapping"), "{shown}");
    let shown = book.explain("workflow", NOW + minutes(30)).unwrap();
    assert!(matches!(shown.origins["acquire.on_error"], Origin::BuiltIn { .. }));
}

#[test]
fn override_ends_are_reported_once_and_wake_subscribers() {
    let book = PolicyBook::builtin();
    let mut changes = book.changes();
    book.set_override("approval", "ttl", "30s", "slow reviewers", minutes(10), NOW).unwrap();
    book.set_override("scheduler", "max_hold", "never", "a long backfill", minutes(5), NOW).unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(book.next_change(NOW), Some(NOW + minutes(5)));

    assert_eq!(book.take_ended_changes(NOW + minutes(4)), []);
    assert!(!changes.has_changed().unwrap());

    let told = book.take_ended_changes(NOW + minutes(20));
    let message: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        message,
        [
            "class.scheduler.max_hold: never -> 15m (reverted: the override has ended: a long backfill)",
            "class.approval.ttl: 30s -> 10s (reverted: the override has ended: slow reviewers)",
        ]
    );
    assert!(told.iter().all(|change| change.kind == ChangeKind::Reverted));
    assert!(changes.has_changed().unwrap());
    assert_eq!(book.take_ended_changes(NOW + minutes(20)), []);
    assert_eq!(book.next_change(NOW + minutes(20)), None);
}

#[test]
fn an_override_end_found_by_another_change_is_still_reported() {
    let book = PolicyBook::builtin();
    book.set_override("approval", "ttl", "30s", "first", minutes(1), NOW).unwrap();
    let change = book.set_override("approval", "ttl", "20s", "second", minutes(1), NOW + minutes(2)).unwrap();
    assert_eq!((change.from.as_str(), change.to.as_str()), ("10s", "20s"));
    let told = book.take_ended_changes(NOW + minutes(2));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].reason.ends_with("first"));
}

#[test]
fn an_invalid_override_changes_nothing() {
    let book = PolicyBook::builtin();
    let before = (book.class("scheduler", NOW).unwrap(), book.version());
    for (field, value, expected) in [
        ("renew.every", "58s", "no retry fits before the deadline: usable time is ttl 60s - drift 620ms"),
        ("ttl", "60", "has no unit"),
        ("ttl", "0s", "is zero"),
        ("ttl", "20m", "class.scheduler.max_hold 15m: must be at least ttl 1200s"),
        ("stop_grace", "1m", "leaves no time to work"),
        ("release.attempts", "0", "must be at least 1"),
        ("renew.on_failure", "fense", "did you mean \"fence\"?"),
        ("renew.evry", "10s", "there is no such field: did you mean `renew.every`?"),
        ("every", "10s", "did you mean `renew.every`?"),
    ] {
        let message =
            book.set_override("scheduler", field, value, "a test", HOUR, NOW).unwrap_err().to_string();
        assert!(message.contains(expected), "{field} = {value}: {message}");
    }
    assert_eq!((book.class("scheduler", NOW).unwrap(), book.version()), before);
    assert_eq!(book.next_change(NOW), None);
}

#[test]
fn the_class_must_stay_valid_when_one_of_two_overrides_ends() {
    let book = PolicyBook::builtin();
    book.set_override("scheduler", "ttl", "10m", "a slow store", HOUR, NOW).unwrap();
    let message = book
        .set_override("scheduler", "renew.every", "3m", "fewer calls", HOUR * 2, NOW)
        .unwrap_err()
        .to_string();
    assert!(message.contains("when an override ends in 1h: no retry fits before the deadline"), "{message}");
    book.set_override("scheduler", "renew.every", "3m", "fewer calls", HOUR, NOW).unwrap();
    let every = |at| book.class("scheduler", at).unwrap().renew.every;
    assert_eq!((every(NOW), every(NOW + HOUR)), (Some(minutes(3)), Some(Duration::from_secs(20))));

    // Clearing only the longer TTL would leave an invalid class; clearing all overrides always works.
    let message = book.clear_override("scheduler", "ttl", NOW).unwrap_err().to_string();
    assert!(message.contains("no retry fits"), "{message}");
    assert_eq!(book.clear_overrides("scheduler", NOW).unwrap().len(), 2);
    assert_eq!(book.class("scheduler", NOW).unwrap(), PolicyBook::builtin().class("scheduler", NOW).unwrap());
}

#[test]
fn an_override_needs_a_reason_and_an_end() {
    let book = PolicyBook::builtin();
    let said = |reason: &str, lasting| {
        book.set_override("scheduler", "mode", "shadow", reason, lasting, NOW).unwrap_err().to_string()
    };
    assert!(said("", HOUR).starts_with("reason \"\": say why"), "{}", said("", HOUR));
    assert!(said(" \t", HOUR).starts_with("reason"));
    assert!(said("two\nlines", HOUR).contains("one line"));
    assert!(said(&"x".repeat(501), HOUR).contains("at most 500"));
    assert!(said("why", Duration::ZERO).starts_with("for \"0s\": an override lasts from 1s to 720h"));
    assert!(said("why", MAX_OVERRIDE_DURATION + Duration::from_secs(1)).contains("from 1s to 720h"));
    let unknown = book.set_override("schedule", "mode", "shadow", "why", HOUR, NOW).unwrap_err().to_string();
    assert!(unknown.contains("did you mean `scheduler`?"), "{unknown}");
}

#[test]
fn overrides_can_be_cleared_and_replaced() {
    let book = PolicyBook::builtin();
    let message = book.clear_override("workflow", "ttl", NOW).unwrap_err().to_string();
    assert!(message.starts_with("class.workflow.ttl is not overridden"), "{message}");
    assert_eq!(book.version(), PolicyBook::builtin().version(), "no change, no number");
    book.set_override("workflow", "renew.on_failure", "fence", "first", HOUR, NOW).unwrap();
    book.set_override("workflow", "renew.on_failure", "continue", "second", minutes(5), NOW).unwrap();
    assert_eq!(book.class("workflow", NOW).unwrap().renew.on_failure, OnFailure::Continue);
    assert_eq!(book.next_change(NOW), Some(NOW + minutes(5)), "replaced, not stacked");
    let change = book.clear_override("workflow", "renew.on_failure", NOW).unwrap();
    assert_eq!(change.kind, ChangeKind::Cleared);
    assert_eq!(book.next_change(NOW), None);
}

#[test]
fn request_settings_change_a_class_for_that_request_only() {
    let book = PolicyBook::builtin();
    let tailored = book.explain_with("scheduler", &[("ttl", "30s"), ("stop_grace", "ttl/6")], NOW).unwrap();
    assert_eq!(tailored.class.stop_grace, Duration::from_secs(5));
    assert_eq!(tailored.origins["ttl"], Origin::Request);
    assert_eq!(book.class("scheduler", NOW).unwrap().ttl.get(), Duration::from_secs(60));
    let message = book.explain_with("scheduler", &[("stop_grace", "59s")], NOW).unwrap_err().to_string();
    assert!(message.contains("ttl 60s - drift 620ms - stop_grace 59s = 380ms"), "{message}");
}

/// Readers on many threads see only complete classes: the one before or the one after.
#[test]
fn concurrent_readers_see_complete_classes() {
    let book = PolicyBook::builtin();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let class = book.class("scheduler", NOW).unwrap();
                    assert_eq!(class.renew.every, Some(class.ttl.get() / 3));
                }
            });
        }
        for round in 0..100 {
            let ttl = if round % 2 == 0 { "30s" } else { "90s" };
            book.set_override("scheduler", "ttl", ttl, "a test", HOUR, NOW).unwrap();
        }
    });
}
