//! Valid policy files, and the error messages for invalid ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{Enforcement, OnError, OnFailure, Origin, PolicyBook, ReleaseWhen, problems};
use leasehold_core::store::Promise;

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);

fn book(text: &str) -> PolicyBook {
    PolicyBook::from_text(text, "p.toml").unwrap_or_else(|why| panic!("{text}\n{why}"))
}

/// The only problem of a policy text.
#[track_caller]
fn only_problem(text: &str) -> String {
    let found = problems(text, "p.toml");
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    assert_eq!(PolicyBook::from_text(text, "p.toml").unwrap_err(), found[0]);
    found[0].to_string()
}

#[test]
fn a_built_in_is_overridden_field_by_field() {
    let book = book("# ours\n[class.scheduler]\nttl = \"90s\"\n[class.scheduler.renew]\ntimeout = \"3s\"\n");
    let class = book.class("scheduler", NOW).unwrap();
    assert_eq!(class.ttl.get(), Duration::from_secs(90));
    assert_eq!(class.renew.every, Some(Duration::from_secs(30)), "still a third");
    assert_eq!(class.drift, Duration::from_millis(920), "follows the ttl");
    assert_eq!(class.renew.timeout, Duration::from_secs(3));
    assert_eq!(class.release.attempts, 2, "as built in");
    let origins = book.explain("scheduler", NOW).unwrap().origins;
    let file = |line| Origin::File { path: "p.toml".into(), line };
    assert_eq!(origins["ttl"], file(3));
    assert_eq!(origins["renew.timeout"], file(5));
    assert!(matches!(&origins["release.attempts"], Origin::BuiltIn { class } if &**class == "scheduler"));
}

#[test]
fn a_new_class_starts_from_the_strictest_legs() {
    let book = book("[class.report]\nttl = \"45s\"\n");
    let (class, scheduler) = (book.class("report", NOW).unwrap(), book.class("scheduler", NOW).unwrap());
    assert_eq!(&*class.name, "report");
    assert_eq!(class.acquire, scheduler.acquire);
    assert_eq!(class.release, scheduler.release);
    assert_eq!(class.renew.on_failure, OnFailure::Fence);
    assert_eq!(class.renew.every, Some(Duration::from_secs(15)));
    assert_eq!(class.max_hold, None, "that one is the scheduler's own");
}

#[test]
fn inheritance_follows_the_file_in_any_order() {
    let book = book(
        "[class.a]\ninherits = \"b\"\nttl = \"20s\"\n[class.b]\ninherits = \"workflow\"\nmode = \"shadow\"\n\
         [class.workflow]\nttl = \"40s\"\n",
    );
    let (a, b) = (book.class("a", NOW).unwrap(), book.class("b", NOW).unwrap());
    assert_eq!(b.ttl.get(), Duration::from_secs(40), "the file's workflow, not the built-in one");
    assert_eq!(a.ttl.get(), Duration::from_secs(20));
    assert_eq!(a.mode, Enforcement::Shadow);
    assert_eq!(a.acquire.on_error, OnError::FailOpen);
    assert_eq!(a.acquire.on_heal_conflict, OnFailure::Continue);
    assert_eq!(&*a.name, "a");
}

#[test]
fn every_field_can_be_set() {
    let book = book(
        r#"
        [class.all]
        poll = "15s"
        ttl = "2 * poll"
        requires = "consensus"
        stop_grace = "1s"
        drift = "500ms"
        max_hold = "1h"
        mode = "shadow"
        acquire = { wait = "0s", retry = "5ms", timeout = "1s", on_error = "fail-open", retry_after = "poll", on_heal_conflict = "fence" }
        renew = { every = "9s", timeout = "ttl/30", max_failures = 5, on_failure = "continue" }
        release = { attempts = 0, timeout = "500ms", lock_delay = "3s", when = "expired" }
        escalate = ["abandoned rate > 1/m for 10m -> fence"]
        "#,
    );
    let class = book.class("all", NOW).unwrap();
    assert_eq!(class.ttl.get(), Duration::from_secs(30));
    assert_eq!(class.requires, Promise::Consensus);
    assert_eq!(class.usable(), Duration::from_millis(28_500));
    assert_eq!(class.max_hold, Some(Duration::from_secs(3600)));
    assert_eq!(class.mode, Enforcement::Shadow);
    assert_eq!(class.acquire.wait, Duration::ZERO);
    assert_eq!(class.acquire.retry, Duration::from_millis(5));
    assert_eq!(class.acquire.timeout, Duration::from_secs(1));
    assert_eq!(class.acquire.on_error, OnError::FailOpen);
    assert_eq!(class.acquire.retry_after, Duration::from_secs(15));
    assert_eq!(class.acquire.on_heal_conflict, OnFailure::Fence, "stated, so it does not follow");
    assert_eq!(class.renew.every, Some(Duration::from_secs(9)));
    assert_eq!(class.renew.timeout, Duration::from_secs(1));
    assert_eq!(class.renew.max_failures, 5);
    assert_eq!(class.renew.on_failure, OnFailure::Continue);
    assert_eq!(class.release.attempts, 0);
    assert_eq!(class.release.timeout, Duration::from_millis(500));
    assert_eq!(class.release.lock_delay, Duration::from_secs(3));
    assert_eq!(class.release.when, ReleaseWhen::Expired);
    assert_eq!(book.explain("all", NOW).unwrap().rules.len(), 1);
}

#[test]
fn values_are_refused_with_line_path_and_what_is_allowed() {
    for (text, expected) in [
        (
            "[class.scheduler]\nttl = 60",
            "p.toml:2: class.scheduler.ttl \"60\": has no unit; write \"60s\" for seconds or \"60ms\" for milliseconds",
        ),
        (
            "[class.scheduler]\nttl = \"60\"",
            "p.toml:2: class.scheduler.ttl \"60\": has no unit; write `60s` for seconds",
        ),
        (
            "[class.scheduler]\n\nttl = \"0s\"",
            "p.toml:3: class.scheduler.ttl \"0s\": is zero: must be a duration with a unit from 100ms to 24h",
        ),
        (
            "[class.scheduler.acquire]\nwait = \"-1s\"",
            "p.toml:2: class.scheduler.acquire.wait \"-1s\": is negative",
        ),
        ("[class.scheduler]\nttl = \"99ms\"", "p.toml:2: class.scheduler.ttl \"99ms\": is out of bounds"),
        (
            "[class.reconciler]\npoll = \"20ms\"",
            "class.reconciler.ttl \"40ms\": must come to a time from 100ms to 24h",
        ),
        ("[class.x]\nttl = \"2*poll\"", "p.toml:2: class.x.ttl \"2*poll\": poll is not stated"),
        (
            "[class.scheduler.renew]\nmax_failures = 0",
            "p.toml:2: class.scheduler.renew.max_failures \"0\": is not allowed: must be a whole number from 1 to 1000",
        ),
        (
            "[class.scheduler.acquire]\non_error = \"fail_closed\"",
            "class.scheduler.acquire.on_error \"fail_closed\": is not known here: did you mean \"fail-closed\"?",
        ),
        (
            "[class.scheduler]\nescalate = [\"fallback rate > 1/s for 5m -> stop\"]",
            "allowed are `-> fail-closed` and `-> fence`",
        ),
        (
            "[class.scheduler]\nescalate = \"x\"",
            "class.scheduler.escalate \"x\": is text: must be a list of rules",
        ),
        (
            "[class.scheduler]\nrenew = \"20s\"",
            "p.toml:2: class.scheduler.renew is not allowed: must be a table: write [class.scheduler.renew]",
        ),
        ("class = 3", "p.toml:1: class is not allowed: must be tables: write [class.NAME]"),
    ] {
        let message = only_problem(text);
        assert!(message.contains(expected), "{text}\n  said:     {message}\n  expected: {expected}");
    }
}

#[test]
fn unknown_key_errors_suggest_the_nearest_key() {
    for (text, expected) in [
        (
            "[class.scheduler.renew]\nevry = \"20s\"",
            "p.toml:2: class.scheduler.renew.evry is not allowed: this key is unknown: did you mean `every`? \
             Known here: every, timeout, max_failures, on_failure",
        ),
        (
            "[class.scheduler]\ntll = \"20s\"",
            "p.toml:2: class.scheduler.tll is not allowed: this key is unknown: did you mean `ttl`?",
        ),
        (
            "[class.scheduler]\nwait = \"2s\"",
            "class.scheduler.wait is not allowed: this key is unknown here: did you mean `acquire.wait`?",
        ),
        (
            "[class.scheduler.renew]\nlock_delay = \"2s\"",
            "this key is unknown here: did you mean `release.lock_delay`?",
        ),
        ("[class.scheduler]\ncolour = \"red\"", "this key is unknown. Known here: ttl, poll,"),
        (
            "[classes.scheduler]\nttl = \"1m\"",
            "p.toml:1: classes is not allowed: this key is unknown: did you mean `class`?",
        ),
        (
            "[class.scheduler]\n\"renew.every\" = \"20s\"",
            "p.toml:2: class.scheduler.renew.every is not allowed",
        ),
        (
            "[class.scheduler.aquire]",
            "p.toml:1: class.scheduler.aquire is not allowed: this key is unknown: did you mean `acquire`?",
        ),
    ] {
        let message = only_problem(text);
        assert!(message.contains(expected), "{text}\n  said:     {message}\n  expected: {expected}");
    }
}

#[test]
fn classes_are_refused_with_the_reason() {
    let long = format!("[class.{}]\nttl = \"1m\"", "x".repeat(65));
    for (text, expected) in [
        (
            "[class.Report]\nttl = \"1m\"",
            "p.toml:1: class \"Report\": a class name is 1 to 64 lower-case letters",
        ),
        ("[class.\"\"]\nttl = \"1m\"", "a class name is 1 to 64"),
        ("[class.a_b]\nttl = \"1m\"", "a class name is 1 to 64"),
        (long.as_str(), "a class name is 1 to 64"),
        (
            "\n[class.report]\nmode = \"shadow\"",
            "p.toml:2: class.report.ttl is missing: a new class must state at least ttl",
        ),
        (
            "[class.report]\ninherits = \"schedulr\"",
            "p.toml:2: class.report.inherits \"schedulr\": there is no such class; did you mean `scheduler`?",
        ),
        ("[class.scheduler]\ninherits = \"scheduler\"", "goes in a circle: scheduler -> scheduler"),
        ("[class.x]\ninherits = 3", "p.toml:2: class.x.inherits is not allowed: must be the name of a class"),
        ("[class.scheduler]\nttl = \"1m\"\nttl = \"2m\"", "p.toml:3 is not TOML: duplicate key"),
        ("[class.scheduler\nttl = \"1m\"", "p.toml:1 is not TOML"),
    ] {
        let message = only_problem(text);
        assert!(message.contains(expected), "{text}\n  said:     {message}\n  expected: {expected}");
    }
    let circle = problems("[class.a]\ninherits = \"b\"\n[class.b]\ninherits = \"a\"", "p.toml");
    assert!(circle[0].to_string().contains("a -> b -> a"), "{circle:?}");
}

#[test]
fn a_chain_of_classes_is_bounded() {
    // Classes are joined in the order of their names: from the heir to its ancestors, and the other way round.
    for name in [|at: u32| format!("c{at:02}"), |at: u32| format!("c{:02}", 99 - at)] {
        let chain = |length: u32| -> String {
            let link = |at| format!("[class.{}]\ninherits = \"{}\"\n", name(at), name(at + 1));
            (0..length).map(link).chain([format!("[class.{}]\nttl = \"1m\"\n", name(length))]).collect()
        };
        assert_eq!(problems(&chain(16), "p.toml"), []);
        let found = problems(&chain(17), "p.toml");
        let first = found.first().map(ToString::to_string).unwrap_or_default();
        assert!(first.contains("at most 16 classes may inherit"), "{found:?}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "[class.scheduler]\nttl = 60\nmodus = \"shadow\"\n[class.scheduler.renew]\nevery = \"soon\"\n\
                [class.Bad]\nttl = \"1m\"\n[class.fresh]\nttl = \"60\"\n[class.workflow]\nstop_grace = \"29s\"\n\
                [class.heir]\ninherits = \"fresh\"\n";
    let found: Vec<_> = problems(text, "p.toml").iter().map(ToString::to_string).collect();
    let expected = [
        "p.toml:2: class.scheduler.ttl",
        "p.toml:3: class.scheduler.modus",
        "p.toml:5: class.scheduler.renew.every",
        "p.toml:6: class \"Bad\"",
        "p.toml:9: class.fresh.ttl",
        "p.toml:11: class.workflow.renew every 10s: no retry fits",
    ];
    for expected in expected {
        assert!(found.iter().any(|message| message.starts_with(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "none twice, none that only follows from another: {found:#?}");
    let one = PolicyBook::from_text(text, "p.toml").unwrap_err().to_string();
    assert!(one.starts_with("p.toml has 6 problems: \n  p.toml:"), "{one}");
    assert_eq!(one.lines().count(), 7);
}

#[test]
fn the_commented_example_can_be_loaded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/leasehold.example.toml");
    let book = PolicyBook::from_file(path).unwrap();
    for name in ["scheduler", "workflow", "nightly-report", "payout", "reconciler"] {
        book.class(name, NOW).unwrap();
    }
    assert_eq!(book.explain("workflow", NOW).unwrap().rules.len(), 1);
}

#[test]
fn an_unreadable_file_reports_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str| PolicyBook::from_file(folder.path().join(name)).unwrap_err().to_string();
    assert!(said("none.toml").contains("none.toml cannot be read: No such file"), "{}", said("none.toml"));
    std::fs::write(folder.path().join("latin.toml"), b"# \xe9").unwrap();
    assert!(said("latin.toml").contains("not UTF-8"));
    std::fs::write(folder.path().join("large.toml"), vec![b'#'; 1024 * 1024 + 1]).unwrap();
    assert!(said("large.toml").contains("at most 1048576"));
    assert!(said(".").contains("cannot be read"));
}
