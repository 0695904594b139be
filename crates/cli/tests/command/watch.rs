//! `watch` and `list --watch`: each change is printed on its own line when it happens.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{Fixture, eventually, exit_code, stderr_of, stdout_of};
use crate::schema::parse_valid;

#[test]
fn changes_of_a_lock_are_printed_in_order() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "other", "--token-file", "o"])), 0);
    assert_eq!(exit_code(&fixture.run(&["acquire", "job:1", "--token-file", "t"])), 0);
    let watch = fixture.start(&["watch", "job:", "-o", "jsonl", "--every", "20ms", "--all"]);
    let kinds = || -> Vec<String> {
        let kind = |line: &str| parse_valid("watch", line)["change"].as_str().unwrap().to_owned();
        // The last line may be incomplete.
        let all = watch.stdout();
        let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(kind).collect()
    };
    let told = |kind: &str| eventually(kind, || kinds().last().is_some_and(|last| last == kind));
    told("acquired");
    assert_eq!(exit_code(&fixture.run(&["renew", "--token-file", "t", "--ttl", "2m"])), 0);
    told("renewed");
    let mut waiter = fixture.start(&["acquire", "-w", "50s", "job:1", "--token-file", "u"]);
    told("waiters");
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 0);
    assert_eq!(waiter.wait_exit_code(), 0);
    eventually("the next holder", || kinds().len() > 3 && kinds().last().is_some_and(|last| last != "freed"));
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "u"])), 0);
    told("freed");
    // A lease that is handed over is short until its new holder confirms it, which looks like a renewal. On
    // a busy machine the waiter may miss the hand-over and then acquires the lock in the ordinary way.
    let expected: [&[&str]; 2] = [&["passed", "freed"], &["freed", "acquired", "freed"]];
    let kinds = kinds();
    assert_eq!(kinds[..3], ["acquired", "renewed", "waiters"]);
    let rest: Vec<&str> = kinds[3..].iter().map(String::as_str).filter(|kind| *kind != "renewed").collect();
    assert!(expected.contains(&&rest[..]), "{kinds:?}");
    assert!(!watch.stdout().contains("other"), "{}", watch.stdout());
}

#[test]
fn exit_code_1_when_nothing_happens_in_time() {
    let fixture = Fixture::sqlite();
    let none = fixture.run(&["watch", "--count", "1", "--for", "100ms", "--every", "20ms"]);
    assert_eq!((exit_code(&none), stdout_of(&none).as_str()), (1, ""));
    assert_eq!(exit_code(&fixture.run(&["watch", "--for", "50ms"])), 0);
    let down = fixture.run(&["--store", "redis://127.0.0.1:1", "watch", "--for", "50ms"]);
    assert_eq!(exit_code(&down), 2, "{}", stderr_of(&down));
}

#[test]
fn a_wait_for_a_name_to_be_free() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "deploy", "--token-file", "t"])), 0);
    let args = ["watch", "deploy", "--all", "--only", "freed", "--count", "1", "--every", "20ms"];
    let mut watch = fixture.start(&args);
    assert_eq!(exit_code(&fixture.run(&["renew", "--token-file", "t", "--ttl", "2m"])), 0);
    assert!(!watch.has_ended());
    // The first `watch` must have read the state while the lock was held.
    let mut seen = fixture.start(&["watch", "deploy", "--all", "--count", "1", "--every", "20ms"]);
    assert_eq!(seen.wait_exit_code(), 0);
    eventually("freed", || {
        let _ = fixture.run(&["release", "--token-file", "t"]);
        if watch.has_ended() {
            return true;
        }
        let _ = fixture.run(&["acquire", "-n", "deploy", "--token-file", "t"]);
        false
    });
    assert!(watch.stdout().contains("freed     deploy  was held by"), "{}", watch.stdout());
}

#[test]
fn list_watch_lists_again_and_again_without_colour_in_a_pipe() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let watch = fixture.start(&["list", "--watch", "--every", "50ms"]);
    eventually("two lists", || watch.stdout().matches("NAME").count() >= 2);
    assert!(watch.stdout().contains("demo") && !watch.stdout().contains('\x1b'));
}
