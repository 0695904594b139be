//! `watch` and `list --watch`: changes, each on its line when it happens.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::schema::valid;
use crate::stage::{Stage, code, eventually, printed, said};

#[test]
fn what_happens_to_a_lock_is_told_in_order() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "other", "--token-file", "o"])), 0);
    assert_eq!(code(&stage.run(&["acquire", "job:1", "--token-file", "t"])), 0);
    let watch = stage.start(&["watch", "job:", "-o", "jsonl", "--every", "20ms", "--all"]);
    let kinds = || -> Vec<String> {
        let kind = |line: &str| valid("watch", line)["change"].as_str().unwrap().to_owned();
        // The last line may still be being written.
        let all = watch.stdout();
        let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(kind).collect()
    };
    let told = |kind: &str| eventually(kind, || kinds().last().is_some_and(|last| last == kind));
    told("acquired");
    assert_eq!(
        code(&stage.run(&["renew", "--token-file", "t", "--ttl", "2m"])),
        0
    );
    told("renewed");
    let mut waiter = stage.start(&["acquire", "-w", "50s", "job:1", "--token-file", "u"]);
    told("waiters");
    assert_eq!(code(&stage.run(&["release", "--token-file", "t"])), 0);
    assert_eq!(waiter.code(), 0);
    eventually("the next holder", || {
        kinds().len() > 3 && kinds().last().is_some_and(|last| last != "freed")
    });
    assert_eq!(code(&stage.run(&["release", "--token-file", "u"])), 0);
    told("freed");
    // A lease that is handed over is short until its new holder confirms it, which looks like a renewal. On a busy machine
    // the waiter may take longer than a hand-over waits for it, and gets it as anyone else.
    let expected: [&[&str]; 2] = [&["passed", "freed"], &["freed", "acquired", "freed"]];
    let kinds = kinds();
    assert_eq!(kinds[..3], ["acquired", "renewed", "waiters"]);
    let rest: Vec<&str> = kinds[3..]
        .iter()
        .map(String::as_str)
        .filter(|kind| *kind != "renewed")
        .collect();
    assert!(expected.contains(&&rest[..]), "{kinds:?}");
    assert!(!watch.stdout().contains("other"), "{}", watch.stdout());
}

#[test]
fn an_honest_no_when_nothing_comes_in_time() {
    let stage = Stage::sqlite();
    let none = stage.run(&["watch", "--count", "1", "--for", "100ms", "--every", "20ms"]);
    assert_eq!((code(&none), printed(&none).as_str()), (1, ""));
    assert_eq!(code(&stage.run(&["watch", "--for", "50ms"])), 0);
    let down = stage.run(&["--store", "redis://127.0.0.1:1", "watch", "--for", "50ms"]);
    assert_eq!(code(&down), 2, "{}", said(&down));
}

#[test]
fn a_wait_for_a_name_to_be_free() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "deploy", "--token-file", "t"])), 0);
    let args = [
        "watch", "deploy", "--all", "--only", "freed", "--count", "1", "--every", "20ms",
    ];
    let mut watch = stage.start(&args);
    assert_eq!(
        code(&stage.run(&["renew", "--token-file", "t", "--ttl", "2m"])),
        0
    );
    assert!(!watch.ended());
    // It must have looked while the lock was held.
    let mut seen = stage.start(&["watch", "deploy", "--all", "--count", "1", "--every", "20ms"]);
    assert_eq!(seen.code(), 0);
    eventually("freed", || {
        let _ = stage.run(&["release", "--token-file", "t"]);
        if watch.ended() {
            return true;
        }
        let _ = stage.run(&["acquire", "-n", "deploy", "--token-file", "t"]);
        false
    });
    assert!(
        watch.stdout().contains("freed     deploy  was held by"),
        "{}",
        watch.stdout()
    );
}

#[test]
fn list_watch_lists_again_and_again_without_colour_in_a_pipe() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let watch = stage.start(&["list", "--watch", "--every", "50ms"]);
    eventually("two lists", || watch.stdout().matches("NAME").count() >= 2);
    assert!(watch.stdout().contains("demo") && !watch.stdout().contains('\x1b'));
}
