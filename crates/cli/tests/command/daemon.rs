//! All verbs through a daemon: `--store http://…` behaves like the store behind it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{Fixture, RunningProcess, eventually, exit_code, is_running, stderr_of, stdout_of};
use crate::schema::parse_valid;
use rustix::process::Signal;

/// A daemon on a SQLite file, with the fixture that has that file.
struct SqliteDaemon {
    running: RunningProcess,
    behind: Fixture,
}

/// A fixture whose store is a daemon's URL.
fn fixture_behind_daemon() -> (Fixture, SqliteDaemon) {
    let behind = Fixture::sqlite();
    let daemon = behind.start(&["serve", "--listen", "127.0.0.1:0"]);
    let mut url = None;
    eventually("the daemon", || {
        let message = daemon.stderr();
        url = message.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
        url.is_some()
    });
    let daemon = SqliteDaemon { running: daemon, behind };
    (Fixture::with_store(url.unwrap()), daemon)
}

#[test]
fn run_behaves_as_against_the_store() {
    let (fixture, _daemon) = fixture_behind_daemon();
    let output = fixture.run(&["run", "-c", "echo fence-$LEASEHOLD_FENCE $LEASEHOLD_STORE; exit 7", "demo"]);
    assert_eq!(exit_code(&output), 7, "{}", stderr_of(&output));
    assert!(
        stdout_of(&output).starts_with("fence-1") && stdout_of(&output).contains(fixture.store()),
        "{}",
        stdout_of(&output)
    );
    let script = "echo $LEASEHOLD_FENCE > fence; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    let mut first = fixture.start(&["--holder", "first", "run", "-c", script, "demo"]);
    let fence = fixture.wait_for_line("fence");
    let busy = fixture.run(&["run", "-n", "demo", "true"]);
    assert_eq!(exit_code(&busy), 124, "{}", stderr_of(&busy));
    assert!(stderr_of(&busy).contains("demo is held by first"), "{}", stderr_of(&busy));
    let lease = parse_valid("lease", &stdout_of(&fixture.run(&["show", "demo", "-o", "json"])));
    assert_eq!((lease["fence"].as_str(), lease["holder"].as_str()), (Some(fence.as_str()), Some("first")));
    let mut second = fixture.start(&["run", "-w", "50s", "-c", "echo $LEASEHOLD_FENCE > next", "demo"]);
    eventually("a waiter", || {
        parse_valid("lease", &stdout_of(&fixture.run(&["show", "demo", "-o", "json"])))["waiters"] == 1
    });
    fixture.write("stop", "");
    assert_eq!(first.wait_exit_code(), 6, "{}", first.stderr());
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    assert!(fixture.wait_for_line("next").parse::<u64>().unwrap() > fence.parse().unwrap());
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 1);
}

/// The daemon dies while a hold exists: the command is stopped in time, as with any unresponsive store.
#[test]
fn a_daemon_that_dies_is_an_outage() {
    let (fixture, mut daemon) = fixture_behind_daemon();
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let mut run = fixture.start(&["run", "--ttl", "3s", "-c", script, "demo"]);
    let pid = fixture.pid("pid");
    daemon.running.signal(Signal::KILL);
    daemon.running.wait_exit_code();
    assert_eq!(run.wait_exit_code(), 121, "{}", run.stderr());
    assert!(!is_running(pid));
    let closed = fixture.run(&["run", "demo", "touch", "ran"]);
    assert_eq!((exit_code(&closed), fixture.path("ran").exists()), (125, false), "{}", stderr_of(&closed));
    let open = fixture.run(&["run", "--class", "workflow", "demo", "touch", "ran"]);
    assert_eq!((exit_code(&open), fixture.path("ran").exists()), (0, true), "{}", stderr_of(&open));
    assert!(stderr_of(&open).contains("LOCAL LOCK ONLY"), "{}", stderr_of(&open));
    for args in [&["list"][..], &["doctor"], &["watch", "--for", "1s"]] {
        let output = fixture.run(args);
        assert_eq!(exit_code(&output), 2, "{args:?}: {}", stderr_of(&output));
        assert!(stderr_of(&output).lines().count() <= 3, "{}", stderr_of(&output));
        // The error is reported once.
        assert_eq!(stderr_of(&output).matches("nothing was changed").count(), 1, "{}", stderr_of(&output));
    }
}

#[test]
fn scripts_keep_locks_through_it() {
    let (fixture, _daemon) = fixture_behind_daemon();
    let taken = fixture.run(&["acquire", "demo", "--token-file", "t", "-o", "json"]);
    assert_eq!(exit_code(&taken), 0, "{}", stderr_of(&taken));
    parse_valid("acquire", &stdout_of(&taken));
    assert_eq!(exit_code(&fixture.run(&["acquire", "-n", "demo", "--token-file", "u"])), 1);
    assert_eq!(exit_code(&fixture.run(&["renew", "--token-file", "t"])), 0);
    let mut watch = fixture
        .start(&["watch", "--all", "--only", "freed", "--count", "1", "--every", "50ms", "-o", "jsonl"]);
    let seen = fixture.run(&["watch", "--all", "--count", "1", "-o", "jsonl"]);
    assert_eq!(parse_valid("watch", stdout_of(&seen).trim())["change"], "acquired");
    eventually("freed", || {
        let _ = fixture.run(&["release", "--token-file", "t"]);
        if watch.has_ended() {
            return true;
        }
        let _ = fixture.run(&["acquire", "-n", "demo", "--token-file", "t"]);
        false
    });
    assert_eq!(parse_valid("watch", watch.stdout().trim())["change"], "freed");
}

#[test]
fn break_refuses_live_holders_and_ends_dead_ones() {
    let (fixture, daemon) = fixture_behind_daemon();
    let script = "echo > up; while :; do sleep 0.02; done";
    let mut run = fixture.start(&["--holder", "me", "run", "--ttl", "2s", "-c", script, "demo"]);
    eventually("the command", || fixture.path("up").exists());
    let refused = fixture.run(&["break", "demo", "--reason", "stuck", "--wait", "10s", "-o", "json"]);
    assert_eq!(exit_code(&refused), 1, "{}", stderr_of(&refused));
    assert_eq!(parse_valid("break", &stdout_of(&refused))["outcome"], "alive");
    assert!(!run.has_ended());
    let forced = fixture.run(&["break", "demo", "--reason", "stuck", "--wait", "10s", "--force"]);
    assert_eq!(exit_code(&forced), 0, "{}", stderr_of(&forced));
    assert_eq!(run.wait_exit_code(), 121, "{}", run.stderr());
    assert!(run.stderr().contains("see who has it now"), "{}", run.stderr());
    assert_eq!(exit_code(&fixture.run(&["acquire", "dead", "--ttl", "10m", "--token-file", "t"])), 0);
    let broken = fixture.run(&["break", "dead", "--reason", "its host is gone", "--wait", "500ms"]);
    assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
    assert_eq!(exit_code(&fixture.run(&["renew", "--token-file", "t"])), 1);
    let audit = fixture.read(".local/state/leasehold/audit.jsonl");
    let last = parse_valid("audit", audit.lines().last().unwrap());
    assert_eq!(
        (last["outcome"].as_str(), last["reason"].as_str()),
        (Some("broken"), Some("its host is gone"))
    );
    // The daemon's audit log has all three: the refusal, the forced break, and the break of the dead holder.
    let log = daemon.behind.read(".local/state/leasehold/daemon/audit.jsonl");
    let told: Vec<_> = log
        .lines()
        .map(|line| parse_valid("audit-log", line))
        .filter(|line| line["action"].as_str().unwrap().starts_with("break"))
        .map(|line| {
            let what = [&line["name"], &line["action"]].map(|word| word.as_str().unwrap().to_owned());
            assert!(line["detail"].as_str().unwrap().contains('@'), "by whom: {line}");
            (what.join(" "), line["forced"].as_bool())
        })
        .collect();
    let told: Vec<_> = told.iter().map(|(what, forced)| (what.as_str(), *forced)).collect();
    assert_eq!(
        told,
        [
            ("demo break-refused", None),
            ("demo break-refused", None),
            ("demo break", Some(true)),
            ("dead break-refused", None),
            ("dead break", Some(false)),
        ]
    );
    assert!(stderr_of(&broken).lines().all(|line| !line.contains("carries no message")));
}

/// `break` first asks the holder to release, through the daemon; the holder sees that at its next renewal.
#[test]
fn break_requests_a_release_through_the_daemon() {
    let (fixture, _daemon) = fixture_behind_daemon();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--ttl", "10m", "--token-file", "t"])), 0);
    let mut watching = fixture.start(&["break", "demo", "--reason", "please, INC-7", "--wait", "50s"]);
    watching.wait_for_stderr("it is asked to let go");
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 0);
    assert_eq!(watching.wait_exit_code(), 1, "{}", watching.stderr());
    assert!(watching.stderr().contains("is free"), "{}", watching.stderr());
}

/// The daemon stops or is killed, and restarts. A follower gets a notice that events may be missing, and
/// then all events of the new process.
#[test]
fn followers_continue_across_a_restart() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (fixture, mut daemon) = fixture_behind_daemon();
        let watch = fixture.start(&["watch", "job:", "--events", "-o", "jsonl"]);
        watch.wait_for_stderr("following http://");
        let told = || -> Vec<(String, String)> {
            let all = watch.stdout();
            let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let event = |line: &str| {
                let json: serde_json::Value = serde_json::from_str(line).unwrap();
                let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
                (text("event"), text("name"))
            };
            whole.lines().map(event).collect()
        };
        let cycle = |name: &str| {
            assert_eq!(exit_code(&fixture.run(&["acquire", name, "--token-file", "t"])), 0);
            assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 0);
        };
        let pair = |name: &str| ["acquired", "released"].map(|what| (what.to_owned(), name.to_owned()));
        cycle("job:1");
        eventually("the first life", || told().len() >= 2);
        daemon.running.signal(signal);
        daemon.running.wait_exit_code();
        watch.wait_for_stderr("the event stream of");
        let listen = fixture.store().trim_start_matches("http://");
        daemon.running = daemon.behind.start(&["serve", "--listen", listen]);
        daemon.running.wait_for_stderr("serving");
        // The follower receives this event whether or not it has reconnected yet.
        cycle("job:2");
        watch.wait_for_stderr(" again\n");
        eventually("the second life", || told().ends_with(&pair("job:2")));
        let mut expected = pair("job:1").to_vec();
        expected.push(("gap".to_owned(), String::new()));
        expected.extend(pair("job:2"));
        assert_eq!(told(), expected);
    }
}

#[test]
fn the_doctor_sees_what_the_daemon_promises() {
    let (fixture, _daemon) = fixture_behind_daemon();
    let output = fixture.run(&["doctor", "-o", "json"]);
    let json = parse_valid("doctor", &stdout_of(&output));
    assert_eq!((exit_code(&output), json["promise"].as_str()), (0, Some("durable")), "{json:#}");
    fixture.write("leasehold.toml", "[class.books]\nttl = \"60s\"\nrequires = \"consensus\"\n");
    let output = fixture.run(&["doctor", "-o", "json"]);
    assert_eq!(exit_code(&output), 1, "{}", stdout_of(&output));
    assert!(stdout_of(&output).contains("class books is refused"), "{}", stdout_of(&output));
    parse_valid("store-info", &stdout_of(&fixture.run(&["store", "info", "-o", "json"])));
}

#[test]
fn policies_are_overridden_for_a_time_and_the_change_is_reported() {
    let (fixture, _daemon) = fixture_behind_daemon();
    let value = || {
        let shown = fixture.run(&["policy", "show", "workflow", "-o", "json"]);
        let json = parse_valid("policy", &stdout_of(&shown));
        let field = &json["classes"][0]["fields"]["acquire.on_error"];
        (field["value"].as_str().unwrap().to_owned(), field["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(value().0, "fail-open");
    let set =
        ["policy", "set", "workflow", "acquire.on_error", "fail-closed", "--for", "30m", "--reason", "INC-7"];
    let output = fixture.run(&set);
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    assert!(stderr_of(&output).contains("fail-open -> fail-closed"), "{}", stderr_of(&output));
    let (now, origin) = value();
    assert_eq!(now, "fail-closed");
    assert!(origin.contains("override") && origin.contains("INC-7"), "{origin}");
    assert!(stdout_of(&fixture.run(&["policy", "show", "workflow"])).contains("INC-7"));
    eventually("the record", || {
        let history = fixture.run(&["policy", "history", "-o", "json"]);
        let json = parse_valid("policy-history", &stdout_of(&history));
        let changes = json["changes"].as_array().unwrap().clone();
        changes.iter().any(|change| change["change"].as_str().unwrap().contains("INC-7"))
    });
    assert!(stdout_of(&fixture.run(&["policy", "history"])).contains("INC-7"));
    for bad in [
        &["policy", "set", "nothing", "ttl", "1s", "--for", "1m", "--reason", "x"][..],
        &["policy", "set", "workflow", "tll", "1s", "--for", "1m", "--reason", "x"],
        &["policy", "show", "nothing"],
    ] {
        let output = fixture.run(bad);
        assert_eq!(exit_code(&output), 2, "{bad:?}: {}", stderr_of(&output));
        assert!(
            stderr_of(&output).contains("refuses") && stderr_of(&output).lines().count() <= 3,
            "{}",
            stderr_of(&output)
        );
    }
    assert_eq!(exit_code(&Fixture::sqlite().run(&set)), 2, "a store keeps no policies");
}

#[test]
fn events_are_followed_as_they_happen() {
    let (fixture, _daemon) = fixture_behind_daemon();
    let watch = fixture.start(&["watch", "job:", "--events", "-o", "jsonl"]);
    watch.wait_for_stderr("following http://");
    assert_eq!(exit_code(&fixture.run(&["acquire", "job:1", "--token-file", "t"])), 0);
    assert_eq!(exit_code(&fixture.run(&["acquire", "other", "--token-file", "o"])), 0);
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 0);
    let told = || -> Vec<serde_json::Value> {
        let all = watch.stdout();
        let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| parse_valid("event", line)).collect()
    };
    let kinds = || told().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    eventually("released", || kinds().contains(&"released".to_owned()));
    assert_eq!(kinds(), ["acquired", "released"]);
    assert!(told().iter().all(|event| event["name"] == "job:1"), "{:?}", told());
    let text = fixture.run(&["watch", "--events", "--count", "1", "--for", "100ms"]);
    assert_eq!(exit_code(&text), 1, "nothing came: {}", stdout_of(&text));
    let plain = Fixture::sqlite().run(&["watch", "--events"]);
    assert_eq!(exit_code(&plain), 2, "{}", stderr_of(&plain));
}
