//! `break`: refuses live holders, ends dead ones, and records the operator and the reason.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{Fixture, eventually, exit_code, stderr_of, stdout_of};
use crate::schema::parse_valid;
use serde_json::Value;

const AUDIT_FILE: &str = ".local/state/leasehold/audit.jsonl";

fn records(fixture: &Fixture) -> Vec<Value> {
    fixture.read(AUDIT_FILE).lines().map(|line| parse_valid("audit", line)).collect()
}

fn last_record(fixture: &Fixture) -> Value {
    records(fixture).pop().unwrap()
}

#[test]
fn a_live_holder_is_not_broken_without_force() {
    let fixture = Fixture::sqlite();
    let script = "echo > up; while [ ! -e stop ]; do sleep 0.02; done";
    let mut run = fixture.start(&["--holder", "me", "run", "--ttl", "2s", "-c", script, "demo"]);
    eventually("the command", || fixture.path("up").exists());
    // The holder renews more often than any configured class, so the watch time is given explicitly.
    let refused =
        fixture.run(&["break", "demo", "--reason", "I think it is stuck", "--wait", "10s", "-o", "json"]);
    assert_eq!(exit_code(&refused), 1, "{}", stderr_of(&refused));
    let json = parse_valid("break", &stdout_of(&refused));
    assert_eq!(
        (&json["outcome"], &json["broken"], &json["holder"]),
        (&"alive".into(), &false.into(), &"me".into())
    );
    assert!(
        stderr_of(&refused).contains("me is alive") && stderr_of(&refused).contains("--force"),
        "{}",
        stderr_of(&refused)
    );
    assert_eq!(
        (last_record(&fixture)["outcome"].as_str(), last_record(&fixture)["forced"].as_bool()),
        (Some("refused"), Some(false))
    );
    assert!(!run.has_ended());

    let args = ["break", "demo", "--reason", "INC-7", "--wait", "10s", "--force"];
    let forced = fixture.run(&args);
    assert_eq!(exit_code(&forced), 0, "{}", stderr_of(&forced));
    assert_eq!(run.wait_exit_code(), 121, "the broken holder is stopped: {}", run.stderr());
    let records = records(&fixture);
    let outcomes: Vec<_> = records.iter().map(|record| record["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["refused", "begun", "broken"]);
    let done = &records[2];
    assert_eq!(done["reason"], "INC-7");
    assert_eq!((&done["forced"], &done["holder"]), (&true.into(), &"me".into()));
    assert!(done["by"].as_str().unwrap().contains('@'));
}

#[test]
fn a_dead_holder_is_broken_and_the_fence_grows() {
    let fixture = Fixture::sqlite();
    // The holder never renews, so it counts as dead.
    let fence =
        stdout_of(&fixture.run(&["acquire", "demo", "--ttl", "10m", "--token-file", "t", "-o", "fence"]));
    let broken =
        fixture.run(&["break", "demo", "--reason", "its host burnt down", "--wait", "500ms", "-o", "json"]);
    assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
    let json = parse_valid("break", &stdout_of(&broken));
    assert_eq!((&json["outcome"], json["fence"].as_str()), (&"broken".into(), Some(fence.trim())));
    assert!(json["watched_ms"].as_u64().unwrap() >= 500);
    assert_eq!(
        exit_code(&fixture.run(&["renew", "--token-file", "t"])),
        1,
        "its token is worth nothing any more"
    );
    let next = stdout_of(&fixture.run(&["acquire", "-n", "demo", "--token-file", "u", "-o", "fence"]));
    assert!(next.trim().parse::<u64>().unwrap() > fence.trim().parse::<u64>().unwrap());
    assert_eq!(last_record(&fixture)["outcome"], "broken");
}

#[test]
fn only_the_named_grant_is_broken() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let other = fixture.run(&["break", "demo", "--reason", "x", "--wait", "0s", "--fence", "1"]);
    assert_eq!(exit_code(&other), 1, "{}", stderr_of(&other));
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 0, "it is still held");
    assert_eq!(exit_code(&fixture.run(&["renew", "--token-file", "t"])), 0);
}

#[test]
fn free_names_missing_reasons_and_a_record_that_cannot_be_written() {
    let fixture = Fixture::sqlite();
    let free = fixture.run(&["break", "demo", "--reason", "x", "-o", "json"]);
    assert_eq!((exit_code(&free), &parse_valid("break", &stdout_of(&free))["outcome"]), (1, &"free".into()));
    for args in [&["break", "demo"][..], &["break", "demo", "--reason", "  "]] {
        assert_eq!(exit_code(&fixture.run(args)), 2, "{args:?}");
    }
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    fixture.write("leasehold.toml", "audit_file = \"/proc/nowhere/audit\"\n");
    assert_eq!(exit_code(&fixture.run(&["config", "trust"])), 0);
    let refused = fixture.run(&["break", "demo", "--reason", "x", "--wait", "0s"]);
    assert_eq!(exit_code(&refused), 2, "{}", stderr_of(&refused));
    assert!(
        stderr_of(&refused).contains("audit_file") && stderr_of(&refused).lines().count() <= 3,
        "{}",
        stderr_of(&refused)
    );
    assert_eq!(
        exit_code(&fixture.run(&["renew", "--token-file", "t"])),
        0,
        "not done, since it could not be written down"
    );
}

/// Without `--wait` the watch window follows the class. A class that renews often keeps the test short.
#[test]
fn the_window_follows_the_class() {
    let fixture = Fixture::sqlite();
    fixture.write(
        "leasehold.toml",
        "[class.quick]\nttl = \"60s\"\n[class.quick.renew]\nevery = \"200ms\"\ntimeout = \"100ms\"\n",
    );
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--class", "quick", "--token-file", "t"])), 0);
    let broken = fixture.run(&["break", "demo", "--reason", "x", "-o", "json"]);
    assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
    let watched = parse_valid("break", &stdout_of(&broken))["watched_ms"].as_u64().unwrap();
    assert!((400..20_000).contains(&watched), "{watched}");
}

/// A missing renewal proves nothing for a class that never renews or is unknown here. Without an explicit
/// watch time the lease is not broken.
#[test]
fn classes_that_never_renew_or_are_unknown_need_a_watch_time() {
    let fixture = Fixture::sqlite();
    let never = "ttl = \"2h\"\n";
    let classes = format!(
        "[class.elsewhere]\n{never}[class.elsewhere.renew]\nevery = \"never\"\n\
         [class.once]\n{never}[class.once.renew]\nevery = \"never\"\n"
    );
    fixture.write("leasehold.toml", &classes);
    for name in ["elsewhere", "once"] {
        let file = format!("t-{name}");
        let taken = fixture.run(&["acquire", name, "--class", name, "--token-file", &file]);
        assert_eq!(exit_code(&taken), 0, "{}", stderr_of(&taken));
    }
    fixture.write("leasehold.toml", &classes.replace("elsewhere", "another"));
    for name in ["elsewhere", "once"] {
        let refused = fixture.run(&["break", name, "--reason", "x", "-o", "json"]);
        assert_eq!(exit_code(&refused), 1, "{}", stderr_of(&refused));
        assert_eq!(parse_valid("break", &stdout_of(&refused))["outcome"], "alive");
        assert!(stderr_of(&refused).contains("it is unknown whether"), "{}", stderr_of(&refused));
        assert_eq!(last_record(&fixture)["outcome"], "refused");
        let forced = fixture.run(&["break", name, "--reason", "x", "--force"]);
        assert_eq!(exit_code(&forced), 0, "{}", stderr_of(&forced));
        assert_eq!(last_record(&fixture)["forced"], true);
    }
}
