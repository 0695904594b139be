//! The policy checks: their arithmetic as printed, and recomputed from the numbers alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, PolicyBook, ReleaseWhen, check, duration, problems};
use proptest::prelude::*;

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);

/// The only problem of a policy text.
#[track_caller]
fn only_problem(text: &str) -> String {
    let found = problems(text, "p.toml");
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    found[0].to_string()
}

#[test]
fn a_plan_without_room_for_a_retry_shows_its_sum() {
    assert_eq!(
        only_problem("[class.scheduler]\nttl = \"60s\"\n[class.scheduler.renew]\nevery = \"58s\""),
        "p.toml:4: class.scheduler.renew every 58s: no retry fits before the deadline: usable time is ttl 60s - drift \
         620ms - stop_grace 0ms = 59.38s, but the first renewal is sent at 58s, may take 2s, and the retry, sent by \
         60.0375s (pause 37.5ms), ends by 62.0375s > 59.38s. To fix it, shorten renew.every to at most 55.342s, or \
         shorten renew.timeout to at most 671ms, or lengthen ttl"
    );
}

#[test]
fn the_proposed_value_is_accepted_and_a_millisecond_more_is_not() {
    let with = |every: &str, timeout: &str| {
        let text = format!("[class.scheduler.renew]\nevery = \"{every}\"\ntimeout = \"{timeout}\"");
        problems(&text, "p.toml").len()
    };
    assert_eq!((with("55342ms", "2s"), with("55343ms", "2s")), (0, 1));
    assert_eq!((with("58s", "671ms"), with("58s", "672ms")), (0, 1));
}

#[test]
fn a_renewal_timeout_that_cannot_fit_is_reported() {
    let message = only_problem("[class.quick]\nttl = \"3s\"");
    assert!(message.starts_with("p.toml:2: class.quick.renew every 1s: no retry fits"), "{message}");
    assert!(message.contains("usable time is ttl 3s - drift 50ms - stop_grace 0ms = 2.95s"), "{message}");
    assert!(
        message.ends_with("To fix it, shorten renew.timeout to at most 956ms, or lengthen ttl"),
        "{message}"
    );
}

#[test]
fn lock_delay_is_bounded() {
    let with = |delay: &str| format!("[class.scheduler.release]\nlock_delay = \"{delay}\"");
    assert_eq!(problems(&with("24h"), "p.toml"), []);
    let text = only_problem(&with("25h"));
    assert!(
        text.contains("p.toml:2: class.scheduler.release.lock_delay \"25h\"") && text.contains("24h"),
        "{text}"
    );
    // A class built in code is checked alike.
    let mut class = Class::clone(&PolicyBook::builtin().class("scheduler", NOW).unwrap());
    class.release.lock_delay = Duration::from_secs(25 * 3600);
    assert!(check(&class).unwrap_err().to_string().contains("release.lock_delay"));
}

#[test]
fn stop_grace_counts_against_the_plan_and_against_the_work() {
    let tight = only_problem("[class.approval]\nstop_grace = \"4s\"");
    assert!(tight.contains("usable time is ttl 10s - drift 120ms - stop_grace 4s = 5.88s"), "{tight}");
    assert_eq!(
        only_problem("[class.approval]\nstop_grace = \"9880ms\""),
        "p.toml:2: class.approval.stop_grace 9s 880ms: leaves no time to work: ttl 10s - drift 120ms = 9.88s, and \
         stop_grace 9.88s takes all of it. Make stop_grace shorter than 9.88s, or lengthen ttl"
    );
}

#[test]
fn drift_of_a_whole_ttl_is_refused() {
    assert_eq!(
        only_problem("[class.admission]\ndrift = \"10s\""),
        "p.toml:2: class.admission.drift 10s: must be shorter than ttl 10s: clocks that drift apart by a whole TTL \
         prove nothing. Leave drift out for the default of 20ms + 1% of ttl = 120ms"
    );
}

#[test]
fn max_hold_below_the_ttl_is_refused() {
    assert_eq!(
        only_problem("[class.scheduler]\nmax_hold = \"45s\""),
        "p.toml:2: class.scheduler.max_hold 45s: must be at least ttl 60s: the hold would be fenced at 45s, and its \
         lease would keep the name shut for 60s - 45s = 15s more. Shorten ttl, or lengthen max_hold"
    );
    assert_eq!(problems("[class.scheduler]\nmax_hold = \"60s\"", "p.toml"), []);
}

#[test]
fn zero_release_attempts_need_release_when_expired() {
    let refused = only_problem("[class.scheduler.release]\nattempts = 0");
    assert!(
        refused.starts_with("p.toml:2: class.scheduler.release.attempts 0: must be at least 1"),
        "{refused}"
    );
    assert_eq!(problems("[class.reconciler.release]\nattempts = 0", "p.toml"), []);
}

#[test]
fn a_class_without_renewals_needs_no_plan() {
    assert_eq!(problems("[class.short]\nttl = \"100ms\"\nrenew.every = \"never\"", "p.toml"), []);
}

/// A class built in code meets the same checks: none relies on the limits of the file parser.
#[test]
fn classes_built_in_code_are_checked_too() {
    let good = PolicyBook::builtin().class("scheduler", NOW).unwrap();
    let refused = |change: fn(&mut Class), field: &str| {
        let mut class = Class::clone(&good);
        change(&mut class);
        let invalid = check(&class).unwrap_err();
        assert_eq!(invalid.field, field, "{invalid}");
    };
    assert_eq!(check(&good), Ok(()));
    refused(|class| class.name = "A".into(), "class");
    refused(|class| class.drift = Duration::from_secs(60), "class.scheduler.drift");
    refused(|class| class.stop_grace = Duration::MAX, "class.scheduler.stop_grace");
    refused(|class| class.renew.timeout = Duration::MAX, "class.scheduler.renew");
    refused(|class| class.renew.every = Some(Duration::ZERO), "class.scheduler.renew.every");
    refused(|class| class.renew.timeout = Duration::ZERO, "class.scheduler.renew.timeout");
    refused(|class| class.renew.max_failures = 0, "class.scheduler.renew.max_failures");
    refused(|class| class.release.attempts = 0, "class.scheduler.release.attempts");
    refused(|class| class.release.timeout = Duration::ZERO, "class.scheduler.release.timeout");
    refused(|class| class.acquire.retry = Duration::ZERO, "class.scheduler.acquire.retry");
    refused(|class| class.acquire.timeout = Duration::ZERO, "class.scheduler.acquire.timeout");
    refused(|class| class.max_hold = Some(Duration::from_secs(59)), "class.scheduler.max_hold");
}

/// Durations that often land near a limit.
fn near_limit_millis(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![1..=max, 1..=max.min(10_000), Just(max)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// An accepted class leaves time to work and room for one retry; a class refused for that does
    /// not. The sums are recomputed here in whole nanoseconds from the policy text.
    #[test]
    fn accepted_classes_have_room_for_a_retry(
        ttl in near_limit_millis(120_000), grace in 0u64..20_000, drift in proptest::option::of(near_limit_millis(5_000)),
        every in proptest::option::of(near_limit_millis(100_000)), timeout in near_limit_millis(10_000), retry in near_limit_millis(500),
        max_hold in proptest::option::of(near_limit_millis(200_000)), attempts in 0u32..3, expired: bool,
    ) {
        let drift_text = drift.map_or("auto".into(), |drift| format!("{drift}ms"));
        let every_text = every.map_or("never".into(), |every| format!("{every}ms"));
        let hold_text = max_hold.map_or("never".into(), |hold| format!("{hold}ms"));
        let when = if expired { "expired" } else { "finished" };
        let text = format!(
            "[class.any]\nttl = \"{ttl}ms\"\nstop_grace = \"{grace}ms\"\ndrift = \"{drift_text}\"\n\
             max_hold = \"{hold_text}\"\nacquire.retry = \"{retry}ms\"\nrenew.every = \"{every_text}\"\n\
             renew.timeout = \"{timeout}ms\"\nrelease.attempts = {attempts}\nrelease.when = \"{when}\"\n"
        );
        let nanos = |millis: u64| i128::from(millis) * 1_000_000;
        let drift = drift.map_or(nanos(20) + nanos(ttl) / 100, nanos);
        let usable = nanos(ttl) - drift - nanos(grace);
        let ended = every.map(|every| nanos(every) + 2 * nanos(timeout) + nanos(retry) * 3 / 2);
        let possible = ttl >= 100
            && usable > 0
            && ended.is_none_or(|ended| ended <= usable)
            && max_hold.is_none_or(|hold| hold >= ttl)
            && (attempts > 0 || expired);
        match PolicyBook::from_text(&text, "p.toml") {
            Ok(book) => {
                prop_assert!(possible, "accepted:\n{text}");
                let class = book.class("any", NOW).unwrap();
                prop_assert_eq!(i128::try_from(class.usable().as_nanos()).unwrap(), usable);
                prop_assert_eq!(class.release.when == ReleaseWhen::Expired, expired);
                prop_assert_eq!(check(&class), Ok(()));
            }
            Err(why) => prop_assert!(!possible, "refused:\n{text}\n{why}"),
        }
    }

    #[test]
    fn durations_round_trip(nanos in 0u64..=u64::MAX / 2) {
        let given = Duration::from_nanos(nanos);
        prop_assert_eq!(duration::parse(&duration::exact(given)), Ok(given));
        prop_assert!(duration::parse(&duration::human(given)).is_ok());
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _problems = problems(&text, "p.toml");
        let _duration = duration::parse(&text);
        let book = PolicyBook::builtin();
        let _unknown = book.class(&text, NOW);
        let _set = book.set_override("scheduler", &text, &text, &text, Duration::from_secs(60), NOW);
    }

    /// Almost valid policy text: correct keys, strange values.
    #[test]
    fn nearly_right_text_never_panics(
        key in prop_oneof![
            Just("ttl"), Just("poll"), Just("inherits"), Just("acquire"), Just("renew.every"), Just("renew.timeout"),
            Just("escalate"), Just("drift"), Just("release.attempts"), Just("max_hold"), Just("stop_grace"),
        ],
        value in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|n| format!("{n:?}")),
            "[0-9]{0,25}(ns|us|ms|s|m|h|d|w|mo|y)".prop_map(|text| format!("\"{text}\"")),
            "(ttl/|[0-9]{0,11}\\*)(poll|[0-9]{0,11})".prop_map(|text| format!("\"{text}\"")),
            "[a-z_]{0,15} rate > [0-9.eE+-]{0,9}/[smh] for [0-9]{0,20}[smh]( and [a-z]{1,10} rising)? -> fence"
                .prop_map(|text| format!("[\"{text}\"]")),
            "[ -~]{0,40}",
        ],
    ) {
        for class in ["x", "scheduler", "reconciler"] {
            let text = format!("[class.{class}]\n{key} = {value}\n");
            let found = problems(&text, "p.toml");
            prop_assert_eq!(found.is_empty(), PolicyBook::from_text(&text, "p.toml").is_ok());
            if let Ok(book) = PolicyBook::from_text(&text, "p.toml") {
                for name in book.classes() {
                    prop_assert_eq!(check(&book.class(&name, NOW).unwrap()), Ok(()));
                    let printed = book.explain(&name, NOW).unwrap().to_toml();
                    let again = PolicyBook::from_text(&printed, "again.toml").unwrap();
                    prop_assert_eq!(again.class(&name, NOW).unwrap(), book.class(&name, NOW).unwrap());
                }
            }
        }
    }
}
