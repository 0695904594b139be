//! The plane's verbs, with replicas as real processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::fixture::{
    BEAT_SCRIPT, Fixture, RunningProcess, StoppedProcess, eventually, exit_code, is_running, last_beat,
    stderr_of, stdout_of,
};
use leasehold::clock::{BootClock, Clock};
use rustix::process::Signal;

/// Leases that are short enough for a test.
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

const LEASE_TTL_SECS: f64 = 1.5;

fn replica(fixture: &Fixture, id: &str) -> RunningProcess {
    fixture.write("policy.toml", POLICY);
    let words = ["--policies", "policy.toml", "plane", "replica", "--poll", "400ms", "--visible", "2s"];
    let running = fixture.start(&[&words[..], &["--id", id]].concat());
    running.wait_for_stderr("is running");
    running
}

fn submit(fixture: &Fixture, args: &[&str]) -> String {
    let out = fixture.run(&[&["job", "submit"], args].concat());
    assert_eq!(exit_code(&out), 0, "{}", stderr_of(&out));
    stdout_of(&out).trim().to_owned()
}

fn state(fixture: &Fixture, job: &str) -> String {
    let out = stdout_of(&fixture.run(&["job", "get", job, "-o", "json"]));
    let found = serde_json::from_str::<serde_json::Value>(&out).unwrap();
    found["state"].as_str().unwrap().to_owned()
}

fn until_state(fixture: &Fixture, job: &str, wanted: &str) {
    eventually(&format!("{job} to be {wanted}"), || state(fixture, job) == wanted);
}

#[test]
fn a_job_runs_and_its_history_is_shown() {
    let fixture = Fixture::sqlite();
    let _replica = replica(&fixture, "a");
    let job = submit(
        &fixture,
        &["--key", "once", "--", "sh", "-c", "echo fence $LEASEHOLD_FENCE of $LEASEHOLD_JOB"],
    );
    assert_eq!(
        submit(
            &fixture,
            &["--key", "once", "--", "sh", "-c", "echo fence $LEASEHOLD_FENCE of $LEASEHOLD_JOB"]
        ),
        job
    );
    until_state(&fixture, &job, "SUCCEEDED");
    let shown = stdout_of(&fixture.run(&["job", "get", &job, "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let output = shown["outcome"]["done"]["output"].as_str().unwrap();
    let fence = shown["history"][4]["fence"].as_str().unwrap();
    assert_eq!(output, format!("fence {fence} of {job}\n"));
    assert!(stdout_of(&fixture.run(&["job", "list", "--state", "succeeded", "-o", "name"])).contains(&job));
    let failed = submit(&fixture, &["--attempts", "1", "--", "sh", "-c", "echo broken >&2; exit 3"]);
    until_state(&fixture, &failed, "FAILED");
    let story = stdout_of(&fixture.run(&["job", "get", &failed]));
    assert!(story.contains("given up: exit status: 3: broken"), "{story}");
    let again = stdout_of(&fixture.run(&["job", "retry", &failed]));
    assert_ne!(again.trim(), failed);
    assert_eq!(exit_code(&fixture.run(&["job", "retry", &job])), 1, "it was not given up");
    assert_eq!(exit_code(&fixture.run(&["job", "get", "nobody"])), 1);
}

#[test]
fn a_running_job_can_be_cancelled() {
    let fixture = Fixture::sqlite();
    let _replica = replica(&fixture, "a");
    let job =
        submit(&fixture, &["--", "sh", "-c", BEAT_SCRIPT, "beat", fixture.path("beats").to_str().unwrap()]);
    fixture.wait_for_line("beats");
    let out = fixture.run(&["job", "cancel", &job, "--reason", "wrong one"]);
    assert!(stderr_of(&out).contains("its owner was asked"), "{}", stderr_of(&out));
    until_state(&fixture, &job, "CANCELLED");
    let ended = BootClock.now().as_nanos() as f64 / 1e9;
    assert!(last_beat(&fixture.read("beats")) <= ended, "nobody beats after the end was written");
}

/// Kills or stops the replica while its command runs. The command must die before another replica can get
/// the job, which then begins a new attempt.
fn assert_taken_over_after(fault: impl FnOnce(&Fixture, &mut RunningProcess)) {
    let fixture = Fixture::sqlite();
    let mut victim = replica(&fixture, "victim");
    // The first attempt never ends by itself; the second one writes its start time.
    let script = format!(
        "if [ $LEASEHOLD_ATTEMPT = 1 ]; then {BEAT_SCRIPT}; else read up rest < /proc/uptime; echo $up >> $2; fi"
    );
    let (beats, second) = (fixture.path("beats"), fixture.path("second"));
    let job = submit(
        &fixture,
        &["--", "sh", "-c", &script, "beat", beats.to_str().unwrap(), second.to_str().unwrap()],
    );
    fixture.wait_for_line("beats");
    let hit = BootClock.now().as_nanos() as f64 / 1e9;
    fault(&fixture, &mut victim);
    let _other = replica(&fixture, "other");
    until_state(&fixture, &job, "SUCCEEDED");
    let begun: f64 = fixture.wait_for_line("second").parse().unwrap();
    let last = last_beat(&fixture.read("beats"));
    assert!(last < hit + LEASE_TTL_SECS, "the command went on for {:.2} s after the fault", last - hit);
    assert!(last < begun, "two at once: {last} and {begun}");
}

#[test]
fn a_killed_replicas_command_dies_with_its_lease() {
    assert_taken_over_after(|_, victim| victim.signal(Signal::KILL));
}

/// The guardian gives a job's command the same end as `run` does: TERM, then KILL, also for a descendant that
/// left the group.
#[test]
fn a_killed_replicas_command_gets_term_and_its_descendants_die() {
    let fixture = Fixture::sqlite();
    let victim = replica(&fixture, "victim");
    // Its output goes to the dead replica: a shell that reports the end of `sleep` there would die of SIGPIPE.
    let script = "exec 2> /dev/null; setsid sh -c 'trap \"\" TERM; echo $$ > $1/child.new; mv $1/child.new $1/child; \
                  while :; do sleep 0.05; done' child $1 & \
                  trap 'echo term > $1/term' TERM; echo $$ > $1/parent.new; mv $1/parent.new $1/parent; \
                  while :; do sleep 0.02; done";
    let folder = fixture.path("");
    submit(&fixture, &["--", "sh", "-c", script, "job", folder.to_str().unwrap()]);
    eventually("both processes", || fixture.path("child").exists() && fixture.path("parent").exists());
    let processes = ["child", "parent"].map(|name| fixture.pid(name));
    assert!(processes.into_iter().all(is_running));
    let hit = BootClock.now().as_nanos() as f64 / 1e9;
    victim.signal(Signal::KILL);
    eventually("the end of the command", || !processes.into_iter().any(is_running));
    let took = BootClock.now().as_nanos() as f64 / 1e9 - hit;
    assert!(took < LEASE_TTL_SECS, "{took:.2} s");
    assert_eq!(fixture.read("term"), "term\n");
    victim.wait_for_stderr("its guardian has ended the command");
}

/// Stops a replica outside any transaction: otherwise the file would stay locked and no replica could take
/// over.
fn stop_between_transactions(fixture: &Fixture, pid: rustix::process::Pid) -> StoppedProcess {
    let free = || {
        let file = rusqlite::Connection::open(fixture.path("locks.db")).unwrap();
        file.busy_timeout(std::time::Duration::ZERO).unwrap();
        file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    };
    let mut frozen = None;
    eventually("a moment between two steps", || {
        // Stopped inside a transaction: let it continue for a moment and try again.
        if frozen.take().is_some() {
            return false;
        }
        frozen = Some(StoppedProcess::new(pid));
        free()
    });
    frozen.unwrap()
}

#[test]
fn a_stopped_replicas_command_dies_with_its_lease() {
    let mut frozen = None;
    assert_taken_over_after(|fixture, victim| {
        frozen = Some(stop_between_transactions(fixture, victim.pid()))
    });
}

#[test]
fn a_stopping_replica_finishes_its_running_jobs() {
    let fixture = Fixture::sqlite();
    let mut first = replica(&fixture, "a");
    let job = submit(&fixture, &["--", "sh", "-c", "echo on > begun; sleep 1"]);
    until_state(&fixture, &job, "RUNNING");
    first.signal(Signal::TERM);
    assert_eq!(first.wait_exit_code(), 0);
    assert_eq!(state(&fixture, &job), "SUCCEEDED");
}

/// Requests a URL with curl and returns the response.
fn curl(url: &str, more: &[&str]) -> String {
    let output = std::process::Command::new("curl")
        .args(["-sS", "-m", "20", "-w", "\n%{http_code}"])
        .args(more)
        .arg(url)
        .output()
        .unwrap();
    stdout_of(&output)
}

#[test]
fn a_replica_counts_once_and_serves_metrics_on_localhost_only() {
    let fixture = Fixture::sqlite();
    let running = fixture.start(&["plane", "replica", "--metrics-listen", "127.0.0.1:0"]);
    running.wait_for_stderr("is running");
    running.wait_for_stderr("/metrics");
    let told = running.stderr();
    let url = told.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
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
    let job = submit(&fixture, &["--", "true"]);
    until_state(&fixture, &job, "SUCCEEDED");
    // The store shows the new state before the replica has counted it.
    eventually("the count", || series("SUCCEEDED").parse::<f64>().unwrap() > 0.0);
    for (state, times) in
        [("SCHEDULED", 1.0), ("DISPATCHED", 1.0), ("RUNNING", 1.0), ("SUCCEEDED", 1.0), ("FAILED", 0.0)]
    {
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
    let refused = fixture.run(&["plane", "replica", "--metrics-listen", "0.0.0.0:0"]);
    assert_ne!(exit_code(&refused), 0);
    assert!(stderr_of(&refused).contains("other machines"), "{}", stderr_of(&refused));
}

#[test]
fn a_workflow_is_checked_with_line_and_field() {
    let fixture = Fixture::sqlite();
    let steps = (0..201).map(|at| format!("[[step]]\nid = \"s{at}\"\ndelay = \"5s\"\n"));
    let many = steps.fold("name = \"w\"\n".to_owned(), |file, step| file + &step);
    for (text, wanted) in [
        (many.as_str(), ["w.toml:602", "step: there are 201", "at most 200 are allowed"]),
        (
            "name = \"w\"\n[[step]]\nid = \"a\"\nexec = [\"true\"]\nneeds = [\"b\"]\n",
            ["w.toml:5", "step[0].needs", "\"b\" is not a step"],
        ),
        ("name = \"w\"\n\n[[step]]\nid = \"a\"\ndelay = \"5\"\n", ["w.toml:5", "delay", "has no unit"]),
        ("name = \"w\"\n[[step]]\nid = \"a\"\nexce = [\"true\"]\n", ["w.toml:4", "exce", "unknown field"]),
        ("name = \"w\"\n[[step]]\nid = \"a\"\n", ["w.toml:2", "step[0]", "exactly one of exec"]),
        (
            "name = \"w\"\n[[step]]\nid = \"a\"\nneeds = [\"a\"]\nexec = [\"true\"]\n",
            ["w.toml:3", "needs", "needs itself"],
        ),
    ] {
        fixture.write("w.toml", text);
        let out = fixture.run(&["workflow", "apply", "w.toml"]);
        assert_eq!(exit_code(&out), 2, "{text}");
        for part in wanted {
            assert!(stderr_of(&out).contains(part), "{text}\n{}", stderr_of(&out));
        }
    }
}

#[test]
fn a_run_waits_for_a_person_and_can_be_watched_and_rerun() {
    let fixture = Fixture::sqlite();
    let _replica = replica(&fixture, "a");
    let text = "name = \"w\"\n[[step]]\nid = \"ask\"\napproval = \"well?\"\n[[step]]\nid = \"go\"\nneeds = [\"ask\"]\nexec = [\"true\"]\n";
    fixture.write("w.toml", text);
    assert_eq!(exit_code(&fixture.run(&["workflow", "apply", "w.toml"])), 0);
    let run = stdout_of(&fixture.run(&["workflow", "start", "w", "--id", "r1"])).trim().to_owned();
    let mut waiting = String::new();
    eventually("an approval to wait", || {
        waiting = stdout_of(&fixture.run(&["approval", "list", "-o", "name"])).trim().to_owned();
        !waiting.is_empty()
    });
    let decide =
        |verb: &str| fixture.run(&["approval", verb, &waiting, "--by", "ann", "--reason", "looked at it"]);
    assert_eq!(exit_code(&decide("approve")), 0);
    let again = decide("approve");
    assert_eq!(exit_code(&again), 1);
    assert!(stderr_of(&again).contains("already_approved"), "{}", stderr_of(&again));
    let watched = fixture.run(&["workflow", "watch", &run]);
    assert_eq!(exit_code(&watched), 0);
    assert!(stdout_of(&watched).contains("go done"), "{}", stdout_of(&watched));
    assert_eq!(exit_code(&fixture.run(&["workflow", "rerun", &run, "--from", "nothing"])), 1);
    assert_eq!(exit_code(&fixture.run(&["workflow", "rerun", &run, "--from", "go"])), 0);
    eventually("the second attempt", || {
        stdout_of(&fixture.run(&["workflow", "get", &run])).contains("go    done    2")
    });
    assert_eq!(exit_code(&fixture.run(&["workflow", "cancel", &run])), 1, "it is over");
}

/// A short version of the proof; `scripts/plane-proof` runs it in full.
/// Finding 16 of the security review: secrets of the replica stay with the replica.
#[test]
fn finding_16_commands_get_the_variables_that_the_replica_passes() {
    let fixture = Fixture::sqlite();
    let words = ["plane", "replica", "--poll", "400ms", "--pass-env", "REGION", "--pass-env", "ZONE"];
    let replica = fixture.start_with(&words, |command| {
        command.env("REGION", "eu").env("ZONE", "b").env("DATABASE_PASSWORD", "hunter2");
    });
    replica.wait_for_stderr("is running");
    submit(&fixture, &["--id", "env", "--", "sh", "-c", "env > seen.tmp; mv seen.tmp seen"]);
    eventually("the command", || fixture.path("seen").exists());
    let seen = fixture.read("seen");
    assert!(
        seen.contains("REGION=eu") && seen.contains("ZONE=b") && seen.contains("LEASEHOLD_JOB=env"),
        "{seen}"
    );
    assert!(!seen.contains("hunter2") && !seen.contains("LEASEHOLD_STORE"), "{seen}");
}

#[test]
fn replicas_break_in_turn_and_every_job_ends_once() {
    let fixture = Fixture::sqlite();
    let words =
        ["--store", "", "drill", "plane", "--jobs", "60", "--runs", "6", "--within", "100s", "--slack", "5s"];
    let out = fixture.run(&words);
    assert_eq!(exit_code(&out), 0, "{}\n{}", stdout_of(&out), stderr_of(&out));
    let text = stdout_of(&out);
    assert!(text.contains("90 of 90 succeeded") && !text.contains("BROKEN"), "{text}");
}

#[test]
fn during_a_lock_store_outage_only_workflow_jobs_run() {
    let fixture = Fixture::sqlite();
    let words = [
        "--store", "", "drill", "plane", "--jobs", "60", "--runs", "20", "--outage", "8s", "--faults",
        "none", "--within", "100s",
    ];
    let out = fixture.run(&words);
    assert_eq!(exit_code(&out), 0, "{}\n{}", stdout_of(&out), stderr_of(&out));
}
