//! Everything through a daemon: `--store http://…` behaves as the store behind it does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::schema::valid;
use crate::stage::{Running, Stage, alive, code, eventually, printed, said};
use rustix::process::Signal;

/// A daemon on a SQLite file, and the folder of that file.
struct Daemon {
    running: Running,
    behind: Stage,
}

/// A stage whose store is a daemon.
fn served() -> (Stage, Daemon) {
    let behind = Stage::sqlite();
    let daemon = behind.start(&["serve", "--listen", "127.0.0.1:0"]);
    let mut url = None;
    eventually("the daemon", || {
        let said = daemon.stderr();
        url = said
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .map(str::to_owned);
        url.is_some()
    });
    let daemon = Daemon {
        running: daemon,
        behind,
    };
    (Stage::at(url.unwrap()), daemon)
}

#[test]
fn run_behaves_as_against_the_store() {
    let (stage, _daemon) = served();
    let output = stage.run(&[
        "run",
        "-c",
        "echo fence-$LEASEHOLD_FENCE $LEASEHOLD_STORE; exit 7",
        "demo",
    ]);
    assert_eq!(code(&output), 7, "{}", said(&output));
    assert!(
        printed(&output).starts_with("fence-1") && printed(&output).contains(stage.store()),
        "{}",
        printed(&output)
    );
    let script = "echo $LEASEHOLD_FENCE > fence; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    let mut first = stage.start(&["--holder", "first", "run", "-c", script, "demo"]);
    let fence = stage.line("fence");
    let busy = stage.run(&["run", "-n", "demo", "true"]);
    assert_eq!(code(&busy), 124, "{}", said(&busy));
    assert!(said(&busy).contains("demo is held by first"), "{}", said(&busy));
    let lease = valid("lease", &printed(&stage.run(&["show", "demo", "-o", "json"])));
    assert_eq!(
        (lease["fence"].as_str(), lease["holder"].as_str()),
        (Some(fence.as_str()), Some("first"))
    );
    let mut second = stage.start(&["run", "-w", "50s", "-c", "echo $LEASEHOLD_FENCE > next", "demo"]);
    eventually("a waiter", || {
        valid("lease", &printed(&stage.run(&["show", "demo", "-o", "json"])))["waiters"] == 1
    });
    stage.write("stop", "");
    assert_eq!(first.code(), 6, "{}", first.stderr());
    assert_eq!(second.code(), 0, "{}", second.stderr());
    assert!(stage.line("next").parse::<u64>().unwrap() > fence.parse().unwrap());
    assert_eq!(code(&stage.run(&["show", "demo"])), 1);
}

/// The daemon dies under a hold: the command is stopped in time, as with any store that is silent.
#[test]
fn a_daemon_that_dies_is_an_outage() {
    let (stage, mut daemon) = served();
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let mut run = stage.start(&["run", "--ttl", "3s", "-c", script, "demo"]);
    let pid = stage.pid("pid");
    daemon.running.signal(Signal::KILL);
    daemon.running.code();
    assert_eq!(run.code(), 121, "{}", run.stderr());
    assert!(!alive(pid));
    let closed = stage.run(&["run", "demo", "touch", "ran"]);
    assert_eq!(
        (code(&closed), stage.path("ran").exists()),
        (125, false),
        "{}",
        said(&closed)
    );
    let open = stage.run(&["run", "--class", "workflow", "demo", "touch", "ran"]);
    assert_eq!(
        (code(&open), stage.path("ran").exists()),
        (0, true),
        "{}",
        said(&open)
    );
    assert!(said(&open).contains("LOCAL LOCK ONLY"), "{}", said(&open));
    for args in [&["list"][..], &["doctor"], &["watch", "--for", "1s"]] {
        let output = stage.run(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", said(&output));
        assert!(said(&output).lines().count() <= 3, "{}", said(&output));
        // What went wrong is said once.
        assert_eq!(
            said(&output).matches("nothing was changed").count(),
            1,
            "{}",
            said(&output)
        );
    }
}

#[test]
fn scripts_keep_locks_through_it() {
    let (stage, _daemon) = served();
    let taken = stage.run(&["acquire", "demo", "--token-file", "t", "-o", "json"]);
    assert_eq!(code(&taken), 0, "{}", said(&taken));
    valid("acquire", &printed(&taken));
    assert_eq!(
        code(&stage.run(&["acquire", "-n", "demo", "--token-file", "u"])),
        1
    );
    assert_eq!(code(&stage.run(&["renew", "--token-file", "t"])), 0);
    let mut watch = stage.start(&[
        "watch", "--all", "--only", "freed", "--count", "1", "--every", "50ms", "-o", "jsonl",
    ]);
    let seen = stage.run(&["watch", "--all", "--count", "1", "-o", "jsonl"]);
    assert_eq!(valid("watch", printed(&seen).trim())["change"], "acquired");
    eventually("freed", || {
        let _ = stage.run(&["release", "--token-file", "t"]);
        if watch.ended() {
            return true;
        }
        let _ = stage.run(&["acquire", "-n", "demo", "--token-file", "t"]);
        false
    });
    assert_eq!(valid("watch", watch.stdout().trim())["change"], "freed");
}

#[test]
fn break_refuses_the_living_and_ends_the_dead() {
    let (stage, daemon) = served();
    let script = "echo > up; while :; do sleep 0.02; done";
    let mut run = stage.start(&["--holder", "me", "run", "--ttl", "2s", "-c", script, "demo"]);
    eventually("the command", || stage.path("up").exists());
    let refused = stage.run(&[
        "break", "demo", "--reason", "stuck", "--wait", "10s", "-o", "json",
    ]);
    assert_eq!(code(&refused), 1, "{}", said(&refused));
    assert_eq!(valid("break", &printed(&refused))["outcome"], "alive");
    assert!(!run.ended());
    let forced = stage.run(&["break", "demo", "--reason", "stuck", "--wait", "10s", "--force"]);
    assert_eq!(code(&forced), 0, "{}", said(&forced));
    assert_eq!(run.code(), 121, "{}", run.stderr());
    assert!(run.stderr().contains("see who has it now"), "{}", run.stderr());
    assert_eq!(
        code(&stage.run(&["acquire", "dead", "--ttl", "10m", "--token-file", "t"])),
        0
    );
    let broken = stage.run(&["break", "dead", "--reason", "its host is gone", "--wait", "500ms"]);
    assert_eq!(code(&broken), 0, "{}", said(&broken));
    assert_eq!(code(&stage.run(&["renew", "--token-file", "t"])), 1);
    let audit = stage.read(".local/state/leasehold/audit.jsonl");
    let last = valid("audit", audit.lines().last().unwrap());
    assert_eq!(
        (last["outcome"].as_str(), last["reason"].as_str()),
        (Some("broken"), Some("its host is gone"))
    );
    // The daemon has it too: that the living was asked and refused, then forced, and that the dead was not.
    let log = daemon.behind.read(".local/state/leasehold/daemon/audit.jsonl");
    let told: Vec<_> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["action"].as_str().unwrap().starts_with("break"))
        .map(|line| {
            let what = [&line["name"], &line["action"]].map(|word| word.as_str().unwrap().to_owned());
            assert!(line["detail"].as_str().unwrap().contains('@'), "by whom: {line}");
            (what.join(" "), line["forced"].as_bool())
        })
        .collect();
    let told: Vec<_> = told
        .iter()
        .map(|(what, forced)| (what.as_str(), *forced))
        .collect();
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
    assert!(
        said(&broken)
            .lines()
            .all(|line| !line.contains("carries no message"))
    );
}

/// The holder is asked through the daemon before anything is watched: it reads so with its next renewal.
#[test]
fn break_asks_the_holder_through_the_daemon() {
    let (stage, _daemon) = served();
    assert_eq!(
        code(&stage.run(&["acquire", "demo", "--ttl", "10m", "--token-file", "t"])),
        0
    );
    let mut watching = stage.start(&["break", "demo", "--reason", "please, INC-7", "--wait", "50s"]);
    watching.says("it is asked to let go");
    assert_eq!(code(&stage.run(&["release", "--token-file", "t"])), 0);
    assert_eq!(watching.code(), 1, "{}", watching.stderr());
    assert!(watching.stderr().contains("is free"), "{}", watching.stderr());
}

/// The daemon ends in order or is killed, and comes back: who follows it hears that something may be missing, and then
/// everything of its next life.
#[test]
fn followers_go_on_across_a_restart() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (stage, mut daemon) = served();
        let watch = stage.start(&["watch", "job:", "--events", "-o", "jsonl"]);
        watch.says("following http://");
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
            assert_eq!(code(&stage.run(&["acquire", name, "--token-file", "t"])), 0);
            assert_eq!(code(&stage.run(&["release", "--token-file", "t"])), 0);
        };
        let pair = |name: &str| ["acquired", "released"].map(|what| (what.to_owned(), name.to_owned()));
        cycle("job:1");
        eventually("the first life", || told().len() >= 2);
        daemon.running.signal(signal);
        daemon.running.code();
        watch.says("is not heard any more");
        let listen = stage.store().trim_start_matches("http://");
        daemon.running = daemon.behind.start(&["serve", "--listen", listen]);
        daemon.running.says("serving");
        // Whether the follower is back already or not: it is told of it all the same.
        cycle("job:2");
        watch.says(" again\n");
        eventually("the second life", || told().ends_with(&pair("job:2")));
        let mut expected = pair("job:1").to_vec();
        expected.push(("gap".to_owned(), String::new()));
        expected.extend(pair("job:2"));
        assert_eq!(told(), expected);
    }
}

#[test]
fn the_doctor_sees_what_the_daemon_promises() {
    let (stage, _daemon) = served();
    let output = stage.run(&["doctor", "-o", "json"]);
    let json = valid("doctor", &printed(&output));
    assert_eq!(
        (code(&output), json["promise"].as_str()),
        (0, Some("durable")),
        "{json:#}"
    );
    stage.write(
        "leasehold.toml",
        "[class.books]\nttl = \"60s\"\nrequires = \"consensus\"\n",
    );
    let output = stage.run(&["doctor", "-o", "json"]);
    assert_eq!(code(&output), 1, "{}", printed(&output));
    assert!(
        printed(&output).contains("class books is refused"),
        "{}",
        printed(&output)
    );
    valid(
        "store-info",
        &printed(&stage.run(&["store", "info", "-o", "json"])),
    );
}

#[test]
fn policies_are_changed_for_a_while_and_the_change_is_told() {
    let (stage, _daemon) = served();
    let value = || {
        let shown = stage.run(&["policy", "show", "workflow", "-o", "json"]);
        let json = valid("policy", &printed(&shown));
        let field = &json["classes"][0]["fields"]["acquire.on_error"];
        (
            field["value"].as_str().unwrap().to_owned(),
            field["origin"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(value().0, "fail-open");
    let set = [
        "policy",
        "set",
        "workflow",
        "acquire.on_error",
        "fail-closed",
        "--for",
        "30m",
        "--reason",
        "INC-7",
    ];
    let output = stage.run(&set);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(
        said(&output).contains("fail-open -> fail-closed"),
        "{}",
        said(&output)
    );
    let (now, origin) = value();
    assert_eq!(now, "fail-closed");
    assert!(
        origin.contains("override") && origin.contains("INC-7"),
        "{origin}"
    );
    assert!(printed(&stage.run(&["policy", "show", "workflow"])).contains("INC-7"));
    eventually("the record", || {
        let history = stage.run(&["policy", "history", "-o", "json"]);
        let json = valid("policy-history", &printed(&history));
        let changes = json["changes"].as_array().unwrap().clone();
        changes
            .iter()
            .any(|change| change["change"].as_str().unwrap().contains("INC-7"))
    });
    assert!(printed(&stage.run(&["policy", "history"])).contains("INC-7"));
    for bad in [
        &[
            "policy", "set", "nothing", "ttl", "1s", "--for", "1m", "--reason", "x",
        ][..],
        &[
            "policy", "set", "workflow", "tll", "1s", "--for", "1m", "--reason", "x",
        ],
        &["policy", "show", "nothing"],
    ] {
        let output = stage.run(bad);
        assert_eq!(code(&output), 2, "{bad:?}: {}", said(&output));
        assert!(
            said(&output).contains("refuses") && said(&output).lines().count() <= 3,
            "{}",
            said(&output)
        );
    }
    assert_eq!(code(&Stage::sqlite().run(&set)), 2, "a store keeps no policies");
}

#[test]
fn events_are_followed_as_they_happen() {
    let (stage, _daemon) = served();
    let watch = stage.start(&["watch", "job:", "--events", "-o", "jsonl"]);
    watch.says("following http://");
    assert_eq!(code(&stage.run(&["acquire", "job:1", "--token-file", "t"])), 0);
    assert_eq!(code(&stage.run(&["acquire", "other", "--token-file", "o"])), 0);
    assert_eq!(code(&stage.run(&["release", "--token-file", "t"])), 0);
    let told = || -> Vec<serde_json::Value> {
        let all = watch.stdout();
        let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| valid("event", line)).collect()
    };
    let kinds = || {
        told()
            .iter()
            .map(|event| event["event"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    eventually("released", || kinds().contains(&"released".to_owned()));
    assert_eq!(kinds(), ["acquired", "released"]);
    assert!(
        told().iter().all(|event| event["name"] == "job:1"),
        "{:?}",
        told()
    );
    let text = stage.run(&["watch", "--events", "--count", "1", "--for", "100ms"]);
    assert_eq!(code(&text), 1, "nothing came: {}", printed(&text));
    let plain = Stage::sqlite().run(&["watch", "--events"]);
    assert_eq!(code(&plain), 2, "{}", said(&plain));
}
