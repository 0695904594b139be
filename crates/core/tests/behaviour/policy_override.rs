//! Overrides: any field, for a while, with a reason; back by themselves; never into something that cannot work.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{ChangeKind, LONGEST_OVERRIDE, OnError, OnFailure, Origin, PolicyBook};

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[test]
fn takes_effect_at_once_is_seen_and_reverts_by_the_clock() {
    let book = PolicyBook::builtin();
    let change = book
        .set(
            "workflow",
            "acquire.on_error",
            "fail-closed",
            "redis is flapping",
            minutes(30),
            NOW,
        )
        .unwrap();
    assert_eq!(
        change.to_string(),
        "class.workflow.acquire.on_error: fail-open -> fail-closed (set: redis is flapping)"
    );
    assert_eq!(
        (change.kind, change.until),
        (ChangeKind::Set, Some(NOW + minutes(30)))
    );

    let on_error = |at| book.class("workflow", at).unwrap().acquire.on_error;
    let last = NOW + minutes(30) - Duration::from_nanos(1);
    assert_eq!(
        (on_error(NOW), on_error(last)),
        (OnError::FailClosed, OnError::FailClosed)
    );
    assert_eq!(
        on_error(NOW + minutes(30)),
        OnError::FailOpen,
        "nobody had to do anything"
    );

    let shown = book.explain("workflow", NOW + minutes(10)).unwrap();
    assert!(
        shown
            .to_string()
            .contains("override for another 20m: redis is flapping"),
        "{shown}"
    );
    let shown = book.explain("workflow", NOW + minutes(30)).unwrap();
    assert!(matches!(
        shown.origins["acquire.on_error"],
        Origin::BuiltIn { .. }
    ));
}

#[test]
fn ends_are_told_once_and_wake_subscribers() {
    let book = PolicyBook::builtin();
    let mut changes = book.changes();
    book.set("approval", "ttl", "30s", "slow reviewers", minutes(10), NOW)
        .unwrap();
    book.set(
        "scheduler",
        "max_hold",
        "never",
        "a long backfill",
        minutes(5),
        NOW,
    )
    .unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(book.next_change(NOW), Some(NOW + minutes(5)));

    assert_eq!(book.expire(NOW + minutes(4)), []);
    assert!(!changes.has_changed().unwrap());

    let told = book.expire(NOW + minutes(20));
    let said: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "class.scheduler.max_hold: never -> 15m (reverted: the override has ended: a long backfill)",
            "class.approval.ttl: 30s -> 10s (reverted: the override has ended: slow reviewers)",
        ]
    );
    assert!(told.iter().all(|change| change.kind == ChangeKind::Reverted));
    assert!(changes.has_changed().unwrap());
    assert_eq!(book.expire(NOW + minutes(20)), []);
    assert_eq!(book.next_change(NOW + minutes(20)), None);
}

#[test]
fn an_end_that_another_change_found_is_still_told() {
    let book = PolicyBook::builtin();
    book.set("approval", "ttl", "30s", "first", minutes(1), NOW)
        .unwrap();
    let change = book
        .set("approval", "ttl", "20s", "second", minutes(1), NOW + minutes(2))
        .unwrap();
    assert_eq!((change.from.as_str(), change.to.as_str()), ("10s", "20s"));
    let told = book.expire(NOW + minutes(2));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].reason.ends_with("first"));
}

#[test]
fn what_cannot_work_changes_nothing() {
    let book = PolicyBook::builtin();
    let before = (book.class("scheduler", NOW).unwrap(), book.version());
    for (field, value, expected) in [
        (
            "renew.every",
            "58s",
            "no retry fits before the deadline: usable time is ttl 60s - drift 620ms",
        ),
        ("ttl", "60", "has no unit"),
        ("ttl", "0s", "is zero"),
        (
            "ttl",
            "20m",
            "class.scheduler.max_hold 15m: must be at least ttl 1200s",
        ),
        ("stop_grace", "1m", "leaves no time to work"),
        ("release.attempts", "0", "must be at least 1"),
        ("renew.on_failure", "fense", "did you mean \"fence\"?"),
        (
            "renew.evry",
            "10s",
            "there is no such field: did you mean `renew.every`?",
        ),
        ("every", "10s", "did you mean `renew.every`?"),
    ] {
        let said = book
            .set("scheduler", field, value, "a test", HOUR, NOW)
            .unwrap_err()
            .to_string();
        assert!(said.contains(expected), "{field} = {value}: {said}");
    }
    assert_eq!((book.class("scheduler", NOW).unwrap(), book.version()), before);
    assert_eq!(book.next_change(NOW), None);
}

#[test]
fn the_class_must_also_work_when_one_of_two_has_ended() {
    let book = PolicyBook::builtin();
    book.set("scheduler", "ttl", "10m", "a slow store", HOUR, NOW)
        .unwrap();
    let said = book
        .set("scheduler", "renew.every", "3m", "fewer calls", HOUR * 2, NOW)
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("when an override ends in 1h: no retry fits before the deadline"),
        "{said}"
    );
    book.set("scheduler", "renew.every", "3m", "fewer calls", HOUR, NOW)
        .unwrap();
    let every = |at| book.class("scheduler", at).unwrap().renew.every;
    assert_eq!(
        (every(NOW), every(NOW + HOUR)),
        (Some(minutes(3)), Some(Duration::from_secs(20)))
    );

    // Taking the longer TTL back alone would leave a plan that cannot work; taking all back always works.
    let said = book.clear("scheduler", "ttl", NOW).unwrap_err().to_string();
    assert!(said.contains("no retry fits"), "{said}");
    assert_eq!(book.clear_all("scheduler", NOW).unwrap().len(), 2);
    assert_eq!(
        book.class("scheduler", NOW).unwrap(),
        PolicyBook::builtin().class("scheduler", NOW).unwrap()
    );
}

#[test]
fn a_reason_and_an_end_are_demanded() {
    let book = PolicyBook::builtin();
    let said = |reason: &str, lasting| {
        book.set("scheduler", "mode", "shadow", reason, lasting, NOW)
            .unwrap_err()
            .to_string()
    };
    assert!(
        said("", HOUR).starts_with("reason \"\": say why"),
        "{}",
        said("", HOUR)
    );
    assert!(said(" \t", HOUR).starts_with("reason"));
    assert!(said("two\nlines", HOUR).contains("one line"));
    assert!(said(&"x".repeat(501), HOUR).contains("at most 500"));
    assert!(said("why", Duration::ZERO).starts_with("for \"0s\": an override lasts from 1s to 720h"));
    assert!(said("why", LONGEST_OVERRIDE + Duration::from_secs(1)).contains("from 1s to 720h"));
    let unknown = book
        .set("schedule", "mode", "shadow", "why", HOUR, NOW)
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("did you mean `scheduler`?"), "{unknown}");
}

#[test]
fn clearing_and_replacing() {
    let book = PolicyBook::builtin();
    let said = book.clear("workflow", "ttl", NOW).unwrap_err().to_string();
    assert!(said.starts_with("class.workflow.ttl is not overridden"), "{said}");
    assert_eq!(
        book.version(),
        PolicyBook::builtin().version(),
        "no change, no number"
    );
    book.set("workflow", "renew.on_failure", "fence", "first", HOUR, NOW)
        .unwrap();
    book.set(
        "workflow",
        "renew.on_failure",
        "continue",
        "second",
        minutes(5),
        NOW,
    )
    .unwrap();
    assert_eq!(
        book.class("workflow", NOW).unwrap().renew.on_failure,
        OnFailure::Continue
    );
    assert_eq!(
        book.next_change(NOW),
        Some(NOW + minutes(5)),
        "replaced, not stacked"
    );
    let change = book.clear("workflow", "renew.on_failure", NOW).unwrap();
    assert_eq!(change.kind, ChangeKind::Cleared);
    assert_eq!(book.next_change(NOW), None);
}

#[test]
fn a_request_can_tailor_a_class_for_itself_only() {
    let book = PolicyBook::builtin();
    let tailored = book
        .tailored("scheduler", &[("ttl", "30s"), ("stop_grace", "ttl/6")], NOW)
        .unwrap();
    assert_eq!(tailored.class.stop_grace, Duration::from_secs(5));
    assert_eq!(tailored.origins["ttl"], Origin::Request);
    assert_eq!(
        book.class("scheduler", NOW).unwrap().ttl.get(),
        Duration::from_secs(60)
    );
    let said = book
        .tailored("scheduler", &[("stop_grace", "59s")], NOW)
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("ttl 60s - drift 620ms - stop_grace 59s = 380ms"),
        "{said}"
    );
}

/// Readers on many threads see only whole classes: the one before or the one after.
#[test]
fn readers_see_whole_classes_while_it_changes() {
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
            book.set("scheduler", "ttl", ttl, "a test", HOUR, NOW).unwrap();
        }
    });
}
