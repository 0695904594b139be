//! The plane's verbs, with real replicas as processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::stage::{BEAT, Frozen, Running, Stage, code, eventually, last_beat, printed, said};
use leasehold::clock::{BootClock, Clock};
use rustix::process::Signal;

/// Leases short enough to wait for.
const POLICY: &str = "
[class.scheduler]
ttl = \"1500ms\"
renew = { timeout = \"250ms\" }
acquire = { timeout = \"700ms\" }
[class.reconciler]
poll = \"400ms\"
renew = { timeout = \"130ms\" }
acquire = { timeout = \"400ms\" }
[class.replayer]
poll = \"400ms\"
renew = { timeout = \"130ms\" }
acquire = { timeout = \"400ms\" }
";

const TTL: f64 = 1.5;

fn replica(stage: &Stage, id: &str) -> Running {
    stage.write("policy.toml", POLICY);
    let words = [
        "--policies",
        "policy.toml",
        "plane",
        "replica",
        "--poll",
        "400ms",
        "--visible",
        "2s",
    ];
    let running = stage.start(&[&words[..], &["--id", id]].concat());
    running.says("is at work");
    running
}

fn submit(stage: &Stage, args: &[&str]) -> String {
    let out = stage.run(&[&["job", "submit"], args].concat());
    assert_eq!(code(&out), 0, "{}", said(&out));
    printed(&out).trim().to_owned()
}

fn state(stage: &Stage, job: &str) -> String {
    let out = printed(&stage.run(&["job", "get", job, "-o", "json"]));
    let found = serde_json::from_str::<serde_json::Value>(&out).unwrap();
    found["state"].as_str().unwrap().to_owned()
}

fn until_state(stage: &Stage, job: &str, wanted: &str) {
    eventually(&format!("{job} to be {wanted}"), || state(stage, job) == wanted);
}

#[test]
fn a_job_runs_and_its_story_is_told() {
    let stage = Stage::sqlite();
    let _replica = replica(&stage, "a");
    let job = submit(
        &stage,
        &[
            "--key",
            "once",
            "--",
            "sh",
            "-c",
            "echo fence $LEASEHOLD_FENCE of $LEASEHOLD_JOB",
        ],
    );
    assert_eq!(
        submit(
            &stage,
            &[
                "--key",
                "once",
                "--",
                "sh",
                "-c",
                "echo fence $LEASEHOLD_FENCE of $LEASEHOLD_JOB"
            ]
        ),
        job
    );
    until_state(&stage, &job, "SUCCEEDED");
    let shown = printed(&stage.run(&["job", "get", &job, "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let output = shown["outcome"]["done"]["output"].as_str().unwrap();
    let fence = shown["history"][4]["fence"].as_str().unwrap();
    assert_eq!(output, format!("fence {fence} of {job}\n"));
    assert!(printed(&stage.run(&["job", "list", "--state", "succeeded", "-o", "name"])).contains(&job));
    let failed = submit(
        &stage,
        &["--attempts", "1", "--", "sh", "-c", "echo broken >&2; exit 3"],
    );
    until_state(&stage, &failed, "FAILED");
    let story = printed(&stage.run(&["job", "get", &failed]));
    assert!(story.contains("given up: exit status: 3: broken"), "{story}");
    let again = printed(&stage.run(&["job", "retry", &failed]));
    assert_ne!(again.trim(), failed);
    assert_eq!(
        code(&stage.run(&["job", "retry", &job])),
        1,
        "it was not given up"
    );
    assert_eq!(code(&stage.run(&["job", "get", "nobody"])), 1);
}

#[test]
fn a_job_at_work_can_be_called_off() {
    let stage = Stage::sqlite();
    let _replica = replica(&stage, "a");
    let job = submit(
        &stage,
        &[
            "--",
            "sh",
            "-c",
            BEAT,
            "beat",
            stage.path("beats").to_str().unwrap(),
        ],
    );
    stage.line("beats");
    let out = stage.run(&["job", "cancel", &job, "--reason", "wrong one"]);
    assert!(said(&out).contains("its owner was told"), "{}", said(&out));
    until_state(&stage, &job, "CANCELLED");
    let ended = BootClock.now().as_nanos() as f64 / 1e9;
    assert!(
        last_beat(&stage.read("beats")) <= ended,
        "nobody beats after the end was written"
    );
}

/// The replica is killed or stopped while its command runs: the command is dead before anyone else can have the job, and
/// the next replica begins a new attempt after that.
fn taken_over_after(fault: impl FnOnce(&Stage, &mut Running)) {
    let stage = Stage::sqlite();
    let mut victim = replica(&stage, "victim");
    // The first attempt never ends by itself; the second one says when it began.
    let script = format!(
        "if [ $LEASEHOLD_ATTEMPT = 1 ]; then {BEAT}; else read up rest < /proc/uptime; echo $up >> $2; fi"
    );
    let (beats, second) = (stage.path("beats"), stage.path("second"));
    let job = submit(
        &stage,
        &[
            "--",
            "sh",
            "-c",
            &script,
            "beat",
            beats.to_str().unwrap(),
            second.to_str().unwrap(),
        ],
    );
    stage.line("beats");
    let hit = BootClock.now().as_nanos() as f64 / 1e9;
    fault(&stage, &mut victim);
    let _other = replica(&stage, "other");
    until_state(&stage, &job, "SUCCEEDED");
    let begun: f64 = stage.line("second").parse().unwrap();
    let last = last_beat(&stage.read("beats"));
    assert!(
        last < hit + TTL,
        "the command went on for {:.2} s after the fault",
        last - hit
    );
    assert!(last < begun, "two at once: {last} and {begun}");
}

#[test]
fn a_killed_replicas_command_dies_with_its_lease() {
    taken_over_after(|_, victim| victim.signal(Signal::KILL));
}

/// Stopped, but not inside a transaction: the file would stay locked for as long, and nobody could take over.
fn between_steps(stage: &Stage, pid: rustix::process::Pid) -> Frozen {
    let free = || {
        let file = rusqlite::Connection::open(stage.path("locks.db")).unwrap();
        file.busy_timeout(std::time::Duration::ZERO).unwrap();
        file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    };
    let mut frozen = None;
    eventually("a moment between two steps", || {
        // It goes on for a moment after one that was not.
        if frozen.take().is_some() {
            return false;
        }
        frozen = Some(Frozen::new(pid));
        free()
    });
    frozen.unwrap()
}

#[test]
fn a_stopped_replicas_command_dies_with_its_lease() {
    let mut frozen = None;
    taken_over_after(|stage, victim| frozen = Some(between_steps(stage, victim.pid())));
}

#[test]
fn told_to_end_a_replica_finishes_what_it_has_begun() {
    let stage = Stage::sqlite();
    let mut first = replica(&stage, "a");
    let job = submit(&stage, &["--", "sh", "-c", "echo on > begun; sleep 1"]);
    until_state(&stage, &job, "RUNNING");
    first.signal(Signal::TERM);
    assert_eq!(first.code(), 0);
    assert_eq!(state(&stage, &job), "SUCCEEDED");
}

/// What a listener for metrics answers to curl.
fn curl(url: &str, more: &[&str]) -> String {
    let output = std::process::Command::new("curl")
        .args(["-sS", "-m", "20", "-w", "\n%{http_code}"])
        .args(more)
        .arg(url)
        .output()
        .unwrap();
    printed(&output)
}

#[test]
fn a_replica_counts_what_it_does_once_and_shows_it_on_this_machine_only() {
    let stage = Stage::sqlite();
    let running = stage.start(&["plane", "replica", "--metrics-listen", "127.0.0.1:0"]);
    running.says("is at work");
    running.says("/metrics");
    let told = running.stderr();
    let url = told
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .unwrap();
    let series = |label: &str| {
        let start = format!(
            "leasehold_plane_job_transitions_total{{store=\"sqlite\",class=\"scheduler\",state=\"{label}\"}} "
        );
        let text = curl(url, &[]);
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {start} in {text}")).to_owned()
    };
    for state in ["DISPATCHED", "SUCCEEDED", "FAILED"] {
        assert_eq!(series(state).parse::<f64>().unwrap(), 0.0, "from the start");
    }
    let job = submit(&stage, &["--", "true"]);
    until_state(&stage, &job, "SUCCEEDED");
    // The store tells before the one who wrote has counted.
    eventually("the count", || series("SUCCEEDED").parse::<f64>().unwrap() > 0.0);
    for (state, times) in [
        ("SCHEDULED", 1.0),
        ("DISPATCHED", 1.0),
        ("RUNNING", 1.0),
        ("SUCCEEDED", 1.0),
        ("FAILED", 0.0),
    ] {
        assert_eq!(series(state).parse::<f64>().unwrap(), times, "{state}");
    }
    let text = curl(url, &[]);
    for line in [
        "leasehold_plane_jobs{store=\"sqlite\",state=\"SUCCEEDED\"} 1",
        "leasehold_plane_dispatch_seconds_count{store=\"sqlite\",class=\"scheduler\"} 1",
        "leasehold_plane_duplicate_terminal_total{store=\"sqlite\"} 0",
        "leasehold_acquire_total{store=\"sqlite\",class=\"scheduler\",namespace=\"job\",outcome=\"acquired\"} 1",
    ] {
        assert!(text.lines().any(|told| told.starts_with(line)), "{line}\n{text}");
    }
    assert!(!text.contains(&job), "never a name");
    let root = url.trim_end_matches("/metrics");
    assert!(curl(&format!("{root}/healthz"), &[]).contains("\"status\":\"ok\""));
    for (path, more, wanted) in [
        ("/v1/jobs", vec![], "404"),
        ("/metrics", vec!["-X", "POST"], "405"),
        ("/metrics", vec!["-H", "host: evil.example"], "421"),
        ("/metrics", vec!["-H", "origin: http://evil.example"], "403"),
    ] {
        let answer = curl(&format!("{root}{path}"), &more);
        assert!(answer.ends_with(wanted), "{path} {more:?}: {answer}");
    }
    let refused = stage.run(&["plane", "replica", "--metrics-listen", "0.0.0.0:0"]);
    assert_ne!(code(&refused), 0);
    assert!(said(&refused).contains("other machines"), "{}", said(&refused));
}

#[test]
fn a_workflow_is_checked_with_line_and_field() {
    let stage = Stage::sqlite();
    for (text, wanted) in [
        (
            "name = \"w\"\n[[step]]\nid = \"a\"\nexec = [\"true\"]\nneeds = [\"b\"]\n",
            ["w.toml:5", "step[0].needs", "\"b\" is not a step"],
        ),
        (
            "name = \"w\"\n\n[[step]]\nid = \"a\"\ndelay = \"5\"\n",
            ["w.toml:5", "delay", "has no unit"],
        ),
        (
            "name = \"w\"\n[[step]]\nid = \"a\"\nexce = [\"true\"]\n",
            ["w.toml:4", "exce", "unknown field"],
        ),
        (
            "name = \"w\"\n[[step]]\nid = \"a\"\n",
            ["w.toml:2", "step[0]", "exactly one of exec"],
        ),
        (
            "name = \"w\"\n[[step]]\nid = \"a\"\nneeds = [\"a\"]\nexec = [\"true\"]\n",
            ["w.toml:3", "needs", "needs itself"],
        ),
    ] {
        stage.write("w.toml", text);
        let out = stage.run(&["workflow", "apply", "w.toml"]);
        assert_eq!(code(&out), 2, "{text}");
        for part in wanted {
            assert!(said(&out).contains(part), "{text}\n{}", said(&out));
        }
    }
}

#[test]
fn a_run_waits_for_a_person_and_can_be_watched_and_rerun() {
    let stage = Stage::sqlite();
    let _replica = replica(&stage, "a");
    let text = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n[[step]]\nid = \"go\"\nneeds = [\"ask\"]\nexec = [\"true\"]\n";
    stage.write("w.toml", text);
    assert_eq!(code(&stage.run(&["workflow", "apply", "w.toml"])), 0);
    let run = printed(&stage.run(&["workflow", "start", "w", "--id", "r1"]))
        .trim()
        .to_owned();
    let mut waiting = String::new();
    eventually("an approval to wait", || {
        waiting = printed(&stage.run(&["approval", "list", "-o", "name"]))
            .trim()
            .to_owned();
        !waiting.is_empty()
    });
    let decide = |verb: &str| {
        stage.run(&[
            "approval",
            verb,
            &waiting,
            "--by",
            "ann",
            "--reason",
            "looked at it",
        ])
    };
    assert_eq!(code(&decide("approve")), 0);
    let again = decide("approve");
    assert_eq!(code(&again), 1);
    assert!(said(&again).contains("already_approved"), "{}", said(&again));
    let watched = stage.run(&["workflow", "watch", &run]);
    assert_eq!(code(&watched), 0);
    assert!(printed(&watched).contains("go done"), "{}", printed(&watched));
    assert_eq!(
        code(&stage.run(&["workflow", "rerun", &run, "--from", "nothing"])),
        1
    );
    assert_eq!(code(&stage.run(&["workflow", "rerun", &run, "--from", "go"])), 0);
    eventually("the second attempt", || {
        printed(&stage.run(&["workflow", "get", &run])).contains("go    done    2")
    });
    assert_eq!(code(&stage.run(&["workflow", "cancel", &run])), 1, "it is over");
}

/// The proof in small: `scripts/plane-proof` runs it in full.
#[test]
fn replicas_break_in_turn_and_every_job_ends_once() {
    let stage = Stage::sqlite();
    let words = [
        "--store", "", "drill", "plane", "--jobs", "60", "--runs", "6", "--within", "100s", "--slack", "5s",
    ];
    let out = stage.run(&words);
    assert_eq!(code(&out), 0, "{}\n{}", printed(&out), said(&out));
    let text = printed(&out);
    assert!(
        text.contains("90 of 90 succeeded") && !text.contains("BROKEN"),
        "{text}"
    );
}

#[test]
fn the_lock_store_fails_and_only_workflow_work_goes_on() {
    let stage = Stage::sqlite();
    let words = [
        "--store", "", "drill", "plane", "--jobs", "60", "--runs", "20", "--outage", "8s", "--faults",
        "none", "--within", "100s",
    ];
    let out = stage.run(&words);
    assert_eq!(code(&out), 0, "{}\n{}", printed(&out), said(&out));
}
