//! `break`: refuses the living, ends the dead, writes down who and why.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::schema::valid;
use crate::stage::{Stage, code, eventually, printed, said};
use serde_json::Value;

const AUDIT: &str = ".local/state/leasehold/audit.jsonl";

fn records(stage: &Stage) -> Vec<Value> {
    stage
        .read(AUDIT)
        .lines()
        .map(|line| valid("audit", line))
        .collect()
}

fn last(stage: &Stage) -> Value {
    records(stage).pop().unwrap()
}

#[test]
fn a_living_holder_is_not_broken_without_force() {
    let stage = Stage::sqlite();
    let script = "echo > up; while [ ! -e stop ]; do sleep 0.02; done";
    let mut run = stage.start(&["--holder", "me", "run", "--ttl", "2s", "-c", script, "demo"]);
    eventually("the command", || stage.path("up").exists());
    // No class in force renews as often as this one does, so it is told how long to watch.
    let refused = stage.run(&[
        "break",
        "demo",
        "--reason",
        "I think it is stuck",
        "--wait",
        "10s",
        "-o",
        "json",
    ]);
    assert_eq!(code(&refused), 1, "{}", said(&refused));
    let json = valid("break", &printed(&refused));
    assert_eq!(
        (&json["outcome"], &json["broken"], &json["holder"]),
        (&"alive".into(), &false.into(), &"me".into())
    );
    assert!(
        said(&refused).contains("me is alive") && said(&refused).contains("--force"),
        "{}",
        said(&refused)
    );
    assert_eq!(
        (last(&stage)["outcome"].as_str(), last(&stage)["forced"].as_bool()),
        (Some("refused"), Some(false))
    );
    assert!(!run.ended());

    let args = ["break", "demo", "--reason", "INC-7", "--wait", "10s", "--force"];
    let forced = stage.run(&args);
    assert_eq!(code(&forced), 0, "{}", said(&forced));
    assert_eq!(run.code(), 121, "the broken holder is stopped: {}", run.stderr());
    let records = records(&stage);
    let outcomes: Vec<_> = records
        .iter()
        .map(|record| record["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["refused", "begun", "broken"]);
    let done = &records[2];
    assert_eq!(done["reason"], "INC-7");
    assert_eq!((&done["forced"], &done["holder"]), (&true.into(), &"me".into()));
    assert!(done["by"].as_str().unwrap().contains('@'));
}

#[test]
fn a_dead_holder_is_broken_and_the_fence_grows() {
    let stage = Stage::sqlite();
    // Whoever took it never renews: dead, as far as anyone can see.
    let fence = printed(&stage.run(&[
        "acquire",
        "demo",
        "--ttl",
        "10m",
        "--token-file",
        "t",
        "-o",
        "fence",
    ]));
    let broken = stage.run(&[
        "break",
        "demo",
        "--reason",
        "its host burnt down",
        "--wait",
        "500ms",
        "-o",
        "json",
    ]);
    assert_eq!(code(&broken), 0, "{}", said(&broken));
    let json = valid("break", &printed(&broken));
    assert_eq!(
        (&json["outcome"], json["fence"].as_str()),
        (&"broken".into(), Some(fence.trim()))
    );
    assert!(json["watched_ms"].as_u64().unwrap() >= 500);
    assert_eq!(
        code(&stage.run(&["renew", "--token-file", "t"])),
        1,
        "its token is worth nothing any more"
    );
    let next = printed(&stage.run(&["acquire", "-n", "demo", "--token-file", "u", "-o", "fence"]));
    assert!(next.trim().parse::<u64>().unwrap() > fence.trim().parse::<u64>().unwrap());
    assert_eq!(last(&stage)["outcome"], "broken");
}

#[test]
fn only_the_grant_that_was_meant() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let other = stage.run(&["break", "demo", "--reason", "x", "--wait", "0s", "--fence", "1"]);
    assert_eq!(code(&other), 1, "{}", said(&other));
    assert_eq!(code(&stage.run(&["show", "demo"])), 0, "it is still held");
    assert_eq!(code(&stage.run(&["renew", "--token-file", "t"])), 0);
}

#[test]
fn free_names_missing_reasons_and_a_record_that_cannot_be_written() {
    let stage = Stage::sqlite();
    let free = stage.run(&["break", "demo", "--reason", "x", "-o", "json"]);
    assert_eq!(
        (code(&free), &valid("break", &printed(&free))["outcome"]),
        (1, &"free".into())
    );
    for args in [&["break", "demo"][..], &["break", "demo", "--reason", "  "]] {
        assert_eq!(code(&stage.run(args)), 2, "{args:?}");
    }
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    stage.write("leasehold.toml", "audit_file = \"/proc/nowhere/audit\"\n");
    let refused = stage.run(&["break", "demo", "--reason", "x", "--wait", "0s"]);
    assert_eq!(code(&refused), 2, "{}", said(&refused));
    assert!(
        said(&refused).contains("audit_file") && said(&refused).lines().count() <= 3,
        "{}",
        said(&refused)
    );
    assert_eq!(
        code(&stage.run(&["renew", "--token-file", "t"])),
        0,
        "not done, since it could not be written down"
    );
}

/// The window is the class's own when nobody says: short enough to test with a class that renews often.
#[test]
fn the_window_follows_the_class() {
    let stage = Stage::sqlite();
    stage.write(
        "leasehold.toml",
        "[class.quick]\nttl = \"60s\"\n[class.quick.renew]\nevery = \"200ms\"\ntimeout = \"100ms\"\n",
    );
    assert_eq!(
        code(&stage.run(&["acquire", "demo", "--class", "quick", "--token-file", "t"])),
        0
    );
    let broken = stage.run(&["break", "demo", "--reason", "x", "-o", "json"]);
    assert_eq!(code(&broken), 0, "{}", said(&broken));
    let watched = valid("break", &printed(&broken))["watched_ms"].as_u64().unwrap();
    assert!((400..20_000).contains(&watched), "{watched}");
}

/// Whoever never renews says nothing by its silence, and neither does one of a class that only others know: without a word about how
/// long to watch, it is not broken.
#[test]
fn silence_says_nothing_of_a_class_that_does_not_renew_or_is_not_known() {
    let stage = Stage::sqlite();
    let never = "ttl = \"2h\"\n";
    let classes = format!(
        "[class.elsewhere]\n{never}[class.elsewhere.renew]\nevery = \"never\"\n\
         [class.once]\n{never}[class.once.renew]\nevery = \"never\"\n"
    );
    stage.write("leasehold.toml", &classes);
    for name in ["elsewhere", "once"] {
        let file = format!("t-{name}");
        let taken = stage.run(&["acquire", name, "--class", name, "--token-file", &file]);
        assert_eq!(code(&taken), 0, "{}", said(&taken));
    }
    stage.write("leasehold.toml", &classes.replace("elsewhere", "another"));
    for name in ["elsewhere", "once"] {
        let refused = stage.run(&["break", name, "--reason", "x", "-o", "json"]);
        assert_eq!(code(&refused), 1, "{}", said(&refused));
        assert_eq!(valid("break", &printed(&refused))["outcome"], "alive");
        assert!(said(&refused).contains("nobody can tell"), "{}", said(&refused));
        assert_eq!(last(&stage)["outcome"], "refused");
        let forced = stage.run(&["break", name, "--reason", "x", "--force"]);
        assert_eq!(code(&forced), 0, "{}", said(&forced));
        assert_eq!(last(&stage)["forced"], true);
    }
}
