//! `leasehold list`, `show` and `policy`: what they print, where, and what their exit codes say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::stage::{Stage, code, eventually, printed, said};

const WAIT: &str = "echo > $LEASEHOLD_NAME; while [ ! -e stop ]; do sleep 0.05; done";

#[test]
fn lists_and_shows_what_is_held() {
    let stage = Stage::sqlite();
    let empty = stage.run(&["list"]);
    assert_eq!(
        (code(&empty), printed(&empty).lines().count()),
        (0, 1),
        "{}",
        printed(&empty)
    );
    let mut held: Vec<_> = ["job-b", "job-a", "other"]
        .iter()
        .map(|name| stage.start(&["--holder", "h", "run", "--class", "approval", "-c", WAIT, name]))
        .collect();
    for name in ["job-a", "job-b", "other"] {
        eventually(name, || stage.path(name).exists());
    }

    let table = printed(&stage.run(&["list"]));
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "HOLDER", "CLASS", "FENCE", "REMAINING", "AGE"]);
    assert_eq!(rows[1][..3], ["job-a", "h", "approval"], "{table}");
    assert!(!table.contains('\x1b'), "colour in a pipe");
    assert!(printed(&stage.run(&["list", "-o", "wide"])).contains("WAITERS"));

    assert_eq!(
        printed(&stage.run(&["list", "-o", "name", "job-"])),
        "job-a\njob-b\n"
    );
    let cut = stage.run(&["list", "-o", "name", "--limit", "1"]);
    assert_eq!(printed(&cut), "job-a\n");
    assert!(said(&cut).contains("--limit"), "{}", said(&cut));

    let json: serde_json::Value =
        serde_json::from_str(&printed(&stage.run(&["list", "-o", "json"]))).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["leases"].as_array().unwrap().len(), 3);
    let lease = &json["leases"][0];
    assert!(lease["fence"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert!(lease["remaining_ms"].as_u64().unwrap() <= 10_000);
    let lines = printed(&stage.run(&["list", "-o", "jsonl"]));
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|line| line.contains("\"schema_version\":1")));

    let shown = stage.run(&["show", "other", "-o", "json"]);
    assert_eq!(code(&shown), 0);
    let shown: serde_json::Value = serde_json::from_str(&printed(&shown)).unwrap();
    assert_eq!((&shown["name"], &shown["held"]), (&"other".into(), &true.into()));
    stage.write("stop", "");
    held.iter_mut().for_each(|run| assert_eq!(run.code(), 0));
}

#[test]
fn show_tells_free_from_error() {
    let stage = Stage::sqlite();
    let free = stage.run(&["show", "demo"]);
    assert_eq!((code(&free), printed(&free).as_str()), (1, ""));
    assert!(said(&free).contains("demo is free"));
    let json = stage.run(&["show", "demo", "-o", "json"]);
    assert_eq!(code(&json), 1);
    let json: serde_json::Value = serde_json::from_str(&printed(&json)).unwrap();
    assert_eq!(
        (&json["held"], &json["schema_version"]),
        (&false.into(), &1.into())
    );
    for args in [
        &["show", "a b"][..],
        &["--store", "redis://127.0.0.1:1", "show", "demo"],
        &["--store", "redis://127.0.0.1:1", "list"],
        &["list", "--limit", "0"],
        &["frobnicate"],
    ] {
        let output = stage.run(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", said(&output));
        assert_eq!(printed(&output), "", "{args:?}");
    }
}

#[test]
fn policy_check_says_yes_no_or_error() {
    let stage = Stage::sqlite();
    stage.write("good.toml", "[class.report]\nttl = \"45s\"\n");
    stage.write("bad.toml", "[class.report]\nttl = 45\nwaitt = \"1s\"\n");
    assert_eq!(code(&stage.run(&["policy", "check", "good.toml"])), 0);
    let bad = stage.run(&["policy", "check", "bad.toml"]);
    assert_eq!(code(&bad), 1);
    for problem in ["bad.toml:2", "bad.toml:3"] {
        assert!(printed(&bad).contains(problem), "{}", printed(&bad));
    }
    assert_eq!(code(&stage.run(&["policy", "check", "missing.toml"])), 2);
}

/// The settings of the same file are looked at too, each problem once.
#[test]
fn policy_check_checks_settings() {
    let stage = Stage::sqlite();
    let good = "store = \"memory:\"\ntimeout = \"2s\"\nholder = \"web-1\"\n[class.report]\nttl = \"45s\"\n";
    stage.write("good.toml", good);
    assert_eq!(code(&stage.run(&["policy", "check", "good.toml"])), 0);
    stage.write(
        "bad.toml",
        "store = \"frob://x\"\ntimeout = \"5\"\nholder = \"a|b\"\naudit_file = 7\nstor = \"x\"\n[class.report]\nttl = 45\n",
    );
    let bad = stage.run(&["policy", "check", "bad.toml"]);
    assert_eq!(code(&bad), 1, "{}", printed(&bad));
    let problems = printed(&bad);
    for line in [1, 2, 3, 4, 5, 7] {
        let at = format!("bad.toml:{line}:");
        assert_eq!(problems.matches(&at).count(), 1, "{at} {problems}");
    }
    assert_eq!(problems.lines().count(), 6, "{problems}");
}

#[test]
fn policy_show_has_the_origin_of_every_value() {
    let stage = Stage::sqlite();
    stage.write("mine.toml", "[class.report]\nttl = \"45s\"\n");
    let output = stage.run(&["--policies", "mine.toml", "policy", "show", "report"]);
    assert!(printed(&output).contains("mine.toml:2"), "{}", printed(&output));
    let all = printed(&stage.run(&["policy", "show"]));
    for class in ["class scheduler", "class workflow", "class approval"] {
        assert!(all.contains(class), "{class}");
    }
    let unknown = stage.run(&["policy", "show", "schedular"]);
    assert_eq!(code(&unknown), 2);
    assert!(said(&unknown).contains("scheduler"));
}
