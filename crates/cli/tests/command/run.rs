//! `leasehold run` as a command runner: environment, streams and exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::io::Write;
use std::process::Stdio;

use crate::fixture::{Fixture, eventually, exit_code, stderr_of, stdout_of};

#[test]
fn the_command_gets_its_fence_in_the_environment() {
    let fixture = Fixture::sqlite();
    let first = fixture.run(&["run", "demo", "--", "sh", "-c", "echo fence $LEASEHOLD_FENCE"]);
    assert_eq!(exit_code(&first), 0, "{}", stderr_of(&first));
    assert_eq!(stderr_of(&first), "");
    let fence = |output| -> u64 { stdout_of(output).trim().strip_prefix("fence ").unwrap().parse().unwrap() };
    let second = fixture.run(&["run", "demo", "--", "sh", "-c", "echo fence $LEASEHOLD_FENCE"]);
    assert!(fence(&second) > fence(&first));

    let all = fixture.run(&["--holder", "me", "run", "--class", "workflow", "demo:1", "env"]);
    let all = stdout_of(&all);
    for line in [
        "LEASEHOLD_NAME=demo:1".to_owned(),
        "LEASEHOLD_CLASS=workflow".to_owned(),
        "LEASEHOLD_HOLDER=me".to_owned(),
        format!("LEASEHOLD_STORE={}", fixture.store()),
    ] {
        assert!(all.lines().any(|found| found == line), "{line} not in {all}");
    }
}

#[test]
fn an_outer_runs_fence_is_not_passed_on() {
    let fixture = Fixture::sqlite();
    let nested = format!(
        "{0} run inner -- sh -c 'echo $LEASEHOLD_NAME $LEASEHOLD_FENCE'; echo $LEASEHOLD_NAME $LEASEHOLD_FENCE",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let output = fixture.run(&["run", "-c", &nested, "outer"]);
    let (printed, message) = (stdout_of(&output), stderr_of(&output));
    let lines: Vec<Vec<_>> = printed.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!((lines[0][0], lines[1][0]), ("inner", "outer"), "{printed}{message}");
    assert_ne!(lines[0][1], lines[1][1]);
}

/// Trap 22, the parts about exit code and streams; the rest is in `signals.rs`.
#[test]
fn trap_22_true_exit_code_and_stdin() {
    let fixture = Fixture::sqlite();
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137)] {
        let output = fixture.run(&["run", "-c", script, "demo"]);
        assert_eq!(exit_code(&output), expected, "{script}: {}", stderr_of(&output));
        assert_eq!(stderr_of(&output), "", "{script}");
    }
    let mut cat = fixture.command(&["run", "demo", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!((exit_code(&output), stdout_of(&output).as_str()), (0, "through\n"));
}

#[test]
fn a_command_that_cannot_run_has_the_exit_codes_of_env() {
    let fixture = Fixture::sqlite();
    let missing = fixture.run(&["run", "demo", "--", "no-such-command"]);
    assert_eq!(exit_code(&missing), 127);
    assert!(
        stderr_of(&missing).contains("no-such-command: there is no such command"),
        "{}",
        stderr_of(&missing)
    );
    fixture.write("plain", "not a program");
    let plain = fixture.run(&["run", "demo", "./plain"]);
    assert_eq!(exit_code(&plain), 126, "{}", stderr_of(&plain));
    // The lock is free again.
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 1);
}

#[test]
fn options_end_at_the_command_and_there_is_no_shell() {
    let fixture = Fixture::sqlite();
    for args in [
        &["run", "demo", "echo", "-n", "--", "--ttl", "$HOME *"][..],
        &["run", "demo", "--", "echo", "-n", "--", "--ttl", "$HOME *"],
        &["run", "-n", "--ttl", "3s", "demo", "echo", "-n", "--", "--ttl", "$HOME *"],
    ] {
        let output = fixture.run(args);
        assert_eq!(stdout_of(&output), "-- --ttl $HOME *", "{args:?}: {}", stderr_of(&output));
    }
    let shell = fixture.run(&["run", "-c", "echo $((1 + 2)) $LEASEHOLD_NAME", "demo"]);
    assert_eq!(stdout_of(&shell), "3 demo\n");
}

#[test]
fn busy_has_a_code_of_its_own() {
    let fixture = Fixture::sqlite();
    let mut first = fixture.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo > up; while [ ! -e stop ]; do sleep 0.05; done",
        "demo",
    ]);
    eventually("the first to run", || fixture.path("up").exists());
    let busy = fixture.run(&["run", "-n", "demo", "touch", "ran"]);
    assert_eq!(exit_code(&busy), 124);
    assert!(
        stderr_of(&busy).starts_with("leasehold: demo is held by first (class scheduler)"),
        "{}",
        stderr_of(&busy)
    );
    assert!(stderr_of(&busy).lines().count() <= 3);
    assert_eq!(exit_code(&fixture.run(&["run", "-n", "-E", "9", "demo", "touch", "ran"])), 9);
    assert_eq!(exit_code(&fixture.run(&["run", "-w", "100ms", "demo", "touch", "ran"])), 124);
    assert!(!fixture.path("ran").exists());

    // A waiter gets the lock after the release.
    let mut second = fixture.start(&["run", "-w", "50s", "demo", "touch", "ran"]);
    eventually("a waiter", || {
        stdout_of(&fixture.run(&["show", "demo", "-o", "jsonl"])).contains("\"waiters\":1")
    });
    assert!(!fixture.path("ran").exists());
    fixture.write("stop", "");
    assert_eq!((first.wait_exit_code(), second.wait_exit_code()), (0, 0));
    assert!(fixture.path("ran").exists());
}

#[test]
fn bad_arguments_are_refused_before_the_command_runs() {
    let fixture = Fixture::sqlite();
    for (args, advice) in [
        (&["run", "-w", "90", "demo", "touch", "ran"][..], "has no unit; write `90s`"),
        (&["run", "--ttl", "3", "demo", "touch", "ran"], "no unit"),
        (&["run", "a b", "touch", "ran"], "must not contain ' '"),
        (&["run", "-s", "demo", "touch", "ran"], "not supported by this store yet"),
        (&["run", "demo"], "no command"),
        (&["run"], "NAME"),
        (&["run", "-c", "touch ran", "demo", "touch", "ran"], "one string"),
        (&["run", "--class", "schedular", "demo", "touch", "ran"], "scheduler"),
        (&["run", "-n", "-w", "1s", "demo", "touch", "ran"], "cannot be used with"),
        (&["--holder", "a|b", "run", "demo", "touch", "ran"], "holder"),
        (&["--store", "mysql://u:hunter2@h", "run", "demo", "touch", "ran"], "redis://HOST"),
        (&["--store", "redis://u:hunter2@h", "run", "demo", "touch", "ran"], "password_file"),
        (&["--policies", "missing.toml", "run", "demo", "touch", "ran"], "missing.toml"),
        // The error shows the arithmetic.
        (
            &["run", "--ttl", "3s", "--stop-grace", "3s", "demo", "touch", "ran"],
            "ttl 3s - drift 50ms = 2.95s, and stop_grace 3s takes all of it",
        ),
    ] {
        let output = fixture.run(args);
        let message = stderr_of(&output);
        assert_eq!(exit_code(&output), 125, "{args:?}: {message}");
        assert!(message.contains(advice), "{args:?}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    assert!(!fixture.path("ran").exists());
}

#[test]
fn without_a_store_or_a_home_the_error_gives_advice() {
    let fixture = Fixture::sqlite();
    let bare = |args: &[&str]| {
        let mut command = fixture.command(args);
        command.env_remove("LEASEHOLD_STORE");
        command
    };
    let output = bare(&["run", "demo", "true"]).env_remove("HOME").output().unwrap();
    assert_eq!(exit_code(&output), 125);
    assert!(stderr_of(&output).contains("--store"), "{}", stderr_of(&output));
    // With a home directory, the default store is in its state folder.
    assert_eq!(exit_code(&bare(&["run", "demo", "true"]).output().unwrap()), 0);
    assert!(fixture.path(".local/state/leasehold/leasehold.db").exists());
    let output = bare(&["run", "demo", "true"]).env("XDG_STATE_HOME", fixture.path("xdg")).output().unwrap();
    assert_eq!(exit_code(&output), 0);
    assert!(fixture.path("xdg/leasehold/leasehold.db").exists());
}

#[test]
fn a_policy_file_that_cannot_work_runs_nothing() {
    let fixture = Fixture::sqlite();
    for (text, advice) in [
        ("[class.scheduler]\nttl = 60\n", "leasehold.toml:2"),
        ("[class.scheduler]\nttl = \"60\"\n", "no unit"),
        ("[class.scheduler]\nttll = \"60s\"\n", "ttl"),
        ("[class.scheduler]\nttl = \"3s\"\nrenew.timeout = \"2s\"\n", "no retry fits before the deadline"),
    ] {
        // The file is found by its default name.
        fixture.write("leasehold.toml", text);
        let output = fixture.run(&["run", "demo", "touch", "ran"]);
        assert_eq!(exit_code(&output), 125, "{text}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains(advice), "{text}: {}", stderr_of(&output));
    }
    assert!(!fixture.path("ran").exists());
    fixture.write("leasehold.toml", "[class.scheduler]\nttl = \"45s\"\n");
    let output = fixture.run(&["run", "-c", "touch ran", "demo"]);
    assert!(fixture.path("ran").exists(), "{}", stderr_of(&output));
}

#[test]
fn help_and_version() {
    let fixture = Fixture::sqlite();
    let help = fixture.run(&["run", "--help"]);
    assert_eq!(exit_code(&help), 0);
    for word in ["Exit codes:", "121", "LEASEHOLD_FENCE", "Examples:"] {
        assert!(stdout_of(&help).contains(word), "{word}");
    }
    // A password in the URL is refused, and must not appear in the help either.
    let mut command = fixture.command(&["run", "--help"]);
    let help = command.env("LEASEHOLD_STORE", "redis://u:hunter2@h").output().unwrap();
    assert!(!stdout_of(&help).contains("hunter2"));
    // The internal subcommands of `run` are hidden.
    assert!(!stdout_of(&fixture.run(&["--help"])).contains("__g"));
    assert!(stdout_of(&fixture.run(&["--version"])).starts_with("leasehold 0."));
}

/// Metrics for node_exporter: the file exists before the command runs, is complete at any time, and
/// contains the end.
#[test]
fn metrics_go_to_a_file() {
    let fixture = Fixture::sqlite();
    let script = "cp m.prom before.prom; while [ ! -e stop ]; do sleep 0.02; done";
    let args = ["run", "--ttl", "1s", "--metrics-file", "m.prom", "-c", script, "job:42"];
    // A counter without events is zero or missing.
    let counted = |text: &str, metric: &str, outcome: &str| -> f64 {
        let series = format!(
            "leasehold_{metric}_total{{store=\"sqlite\",class=\"scheduler\",namespace=\"job\",outcome=\"{outcome}\"}} "
        );
        let found = text.lines().find_map(|line| line.strip_prefix(&series));
        found.map_or(0.0, |value| value.parse().unwrap())
    };
    let mut run = fixture.start(&args);
    eventually("a renewal in the file", || counted(&fixture.read("m.prom"), "renew", "renewed") > 0.0);
    assert_eq!(counted(&fixture.read("m.prom"), "release", "released"), 0.0);
    fixture.write("stop", "");
    assert_eq!(run.wait_exit_code(), 0, "{}", run.stderr());
    let (before, after) = (fixture.read("before.prom"), fixture.read("m.prom"));
    // The first write happens before or right after the grant is counted.
    assert!(
        fixture.path("before.prom").exists() && counted(&before, "release", "released") == 0.0,
        "{before}"
    );
    assert!(after.contains("# TYPE leasehold_acquire_total counter"), "{after}");
    assert_eq!(counted(&after, "acquire", "acquired"), 1.0, "{after}");
    assert_eq!(counted(&after, "release", "released"), 1.0, "{after}");
    assert!(!after.contains("job:42") && !after.contains("# EOF"), "{after}");
    // No temporary file stays in the collector's folder, and the collector may read the metrics file.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(fixture.path("m.prom")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o644);
    let left: Vec<_> = std::fs::read_dir(fixture.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("m.prom"))
        .collect();
    assert_eq!(left, ["m.prom"]);
    // Checked with Prometheus's own parser.
    let mut check = std::process::Command::new("promtool")
        .args(["check", "metrics", "--extended"])
        .stdin(std::fs::File::open(fixture.path("m.prom")).unwrap())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("promtool must be installed");
    assert!(check.wait().unwrap().code().is_some_and(|code| code != 1), "{after}");
    // Busy is counted too, and an unwritable path is reported before the command runs.
    let mut holding =
        fixture.start(&["run", "-c", "echo > held; while [ ! -e end ]; do sleep 0.02; done", "busy:1"]);
    eventually("the holder", || fixture.path("held").exists());
    let busy = fixture.run(&["run", "-n", "--metrics-file", "b.prom", "busy:1", "true"]);
    assert_eq!(exit_code(&busy), 124);
    assert!(fixture.read("b.prom").contains("outcome=\"busy\""), "{}", fixture.read("b.prom"));
    fixture.write("end", "");
    assert_eq!(holding.wait_exit_code(), 0);
    let nowhere = fixture.run(&["run", "--metrics-file", "no/such/m.prom", "job:42", "touch", "ran"]);
    assert_eq!((exit_code(&nowhere), fixture.path("ran").exists()), (125, false));
    assert!(stderr_of(&nowhere).contains("--metrics-file"), "{}", stderr_of(&nowhere));
}
