//! The numbers of the built-in classes. They come from the articles; this test stops accidental changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{
    BUILTIN_POLICIES, Enforcement, OnError, OnFailure, Origin, PolicyBook, ReleaseWhen, RenewPlan, check,
    check_store, problems,
};
use leasehold_core::store::{Promise, PromiseReport};

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);

/// The expected numbers of one class.
struct ClassNumbers {
    class: &'static str,
    ttl: u64,
    /// `renew.every` in milliseconds, rounded down.
    every: Option<u64>,
    wait: u64,
    retry: u64,
    on_error: OnError,
    retry_after: u64,
    on_failure: OnFailure,
    attempts: u32,
    release_timeout: u64,
    when: ReleaseWhen,
    max_hold: Option<u64>,
}

#[rustfmt::skip]
fn expected_classes() -> Vec<ClassNumbers> {
    use OnError::{FailClosed, FailOpen};
    use OnFailure::{Continue, Fence};
    use ReleaseWhen::{Expired, Finished};
    let row = |class, ttl, every, (wait, retry), (on_error, retry_after), on_failure, (attempts, release_timeout), when, max_hold| ClassNumbers {
        class, ttl, every, wait, retry, on_error, retry_after, on_failure, attempts, release_timeout, when, max_hold,
    };
    vec![
        row("scheduler", 60_000, Some(20_000), (2_000, 25), (FailClosed, 1_000), Fence, (2, 2_000), Finished, Some(900_000)),
        row("workflow", 30_000, Some(10_000), (0, 25), (FailOpen, 1_000), Continue, (2, 2_000), Finished, None),
        row("workflow-critical", 30_000, Some(10_000), (0, 25), (FailClosed, 1_000), Fence, (2, 2_000), Finished, None),
        row("approval", 10_000, Some(3_333), (2_000, 25), (FailClosed, 1_000), Fence, (1, 2_000), Finished, None),
        row("reconciler", 60_000, Some(20_000), (0, 25), (FailClosed, 30_000), Fence, (1, 2_000), Expired, None),
        row("replayer", 60_000, Some(20_000), (0, 25), (FailClosed, 30_000), Fence, (1, 2_000), Expired, None),
        row("admission", 10_000, None, (2_000, 10), (FailClosed, 1_000), Fence, (1, 1_000), Finished, None),
    ]
}

#[test]
fn built_in_classes_have_the_expected_numbers() {
    let book = PolicyBook::builtin();
    let mut names: Vec<_> = expected_classes().iter().map(|row| row.class.to_owned()).collect();
    names.sort();
    assert_eq!(book.classes().iter().map(ToString::to_string).collect::<Vec<_>>(), names);
    let millis = Duration::from_millis;
    for row in expected_classes() {
        let class = book.class(row.class, NOW).unwrap();
        let name = row.class;
        assert_eq!(&*class.name, name);
        assert_eq!(class.ttl.get(), millis(row.ttl), "{name} ttl");
        assert_eq!(class.drift, millis(20 + row.ttl / 100), "{name} drift");
        assert_eq!(class.stop_grace, Duration::ZERO, "{name} stop_grace");
        assert_eq!(class.requires, Promise::Volatile, "{name} requires");
        assert_eq!(class.mode, Enforcement::Enforce, "{name} mode");
        assert_eq!(class.max_hold, row.max_hold.map(millis), "{name} max_hold");
        assert_eq!(class.acquire.wait, millis(row.wait), "{name} wait");
        assert_eq!(class.acquire.retry, millis(row.retry), "{name} retry");
        assert_eq!(class.acquire.timeout, millis(2_000), "{name} acquire.timeout");
        assert_eq!(class.acquire.on_error, row.on_error, "{name} on_error");
        assert_eq!(class.acquire.retry_after, millis(row.retry_after), "{name} retry_after");
        assert_eq!(class.acquire.on_heal_conflict, row.on_failure, "{name} on_heal_conflict");
        let every = class.renew.every.map(|every| u64::try_from(every.as_millis()).unwrap());
        assert_eq!(every, row.every, "{name} every");
        assert_eq!(class.renew.timeout, millis(2_000), "{name} renew.timeout");
        assert_eq!(class.renew.max_failures, 3, "{name} max_failures");
        assert_eq!(class.renew.on_failure, row.on_failure, "{name} on_failure");
        assert_eq!(class.release.attempts, row.attempts, "{name} attempts");
        assert_eq!(class.release.timeout, millis(row.release_timeout), "{name} release.timeout");
        assert_eq!(class.release.lock_delay, Duration::ZERO, "{name} lock_delay");
        assert_eq!(class.release.when, row.when, "{name} when");
    }
}

#[test]
fn built_in_classes_pass_the_checks() {
    assert_eq!(problems(BUILTIN_POLICIES, "builtin.toml"), []);
    let book = PolicyBook::builtin();
    for name in book.classes() {
        let class = book.class(&name, NOW).unwrap();
        assert_eq!(check(&class), Ok(()));
        assert!(RenewPlan::of(&class).is_none_or(|plan| plan.fits()), "{name}");
    }
}

#[test]
fn built_in_classes_round_trip_through_text() {
    let book = PolicyBook::builtin();
    for name in book.classes() {
        let printed = book.explain(&name, NOW).unwrap().to_toml();
        let again =
            PolicyBook::from_text(&printed, "printed.toml").unwrap_or_else(|why| panic!("{printed}\n{why}"));
        assert_eq!(again.class(&name, NOW).unwrap(), book.class(&name, NOW).unwrap());
        let resolved = again.explain(&name, NOW).unwrap();
        assert!(matches!(resolved.origins["ttl"], Origin::File { .. }));
    }
}

#[test]
fn a_book_contains_its_classes_only() {
    let book = PolicyBook::builtin();
    assert!(book.classes().iter().all(|name| book.contains(name)));
    assert!(!book.contains("invented"));
}

#[test]
fn explain_shows_value_expression_and_origin() {
    let shown = PolicyBook::builtin().explain("reconciler", NOW).unwrap().to_string();
    let line = |field: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(field));
        line.unwrap_or_else(|| panic!("{field} in\n{shown}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("FIELD"), "FIELD VALUE ORIGIN");
    assert_eq!(line("poll"), "poll 30s built-in reconciler");
    assert_eq!(line("ttl"), "ttl 1m (2*poll) built-in reconciler");
    assert_eq!(line("renew.every"), "renew.every 20s (ttl/3) built-in reconciler");
    assert_eq!(line("drift"), "drift 620ms derived: 20ms + 1% of ttl");
    assert_eq!(line("max_hold"), "max_hold never default");
    assert_eq!(
        line("acquire.on_heal_conflict"),
        "acquire.on_heal_conflict fence derived: as renew.on_failure"
    );
}

#[test]
fn an_unknown_class_error_suggests_the_nearest_name() {
    let message = PolicyBook::builtin().class("schedular", NOW).unwrap_err().to_string();
    assert!(
        message.starts_with("class \"schedular\": there is no such class; did you mean `scheduler`?"),
        "{message}"
    );
    assert!(
        message.ends_with(
            "Known are admission, approval, reconciler, replayer, scheduler, workflow, workflow-critical"
        ),
        "{message}"
    );
}

#[test]
fn a_store_that_promises_less_is_refused_with_its_findings() {
    let book = PolicyBook::from_text("[class.scheduler]\nrequires = \"durable\"", "p.toml").unwrap();
    let class = book.class("scheduler", NOW).unwrap();
    let volatile =
        PromiseReport::new(Promise::Volatile).with_limits(vec!["appendonly is no: turn it on".into()]);
    let message = check_store(&class, &volatile).unwrap_err().to_string();
    assert!(
        message.starts_with(
            "class.scheduler.requires \"durable\": the store promises only \"volatile\" because appendonly is no: turn it on"
        ),
        "{message}"
    );
    for enough in [Promise::Durable, Promise::Consensus] {
        let promised = PromiseReport::new(enough);
        assert_eq!(check_store(&class, &promised), Ok(()));
    }
}
