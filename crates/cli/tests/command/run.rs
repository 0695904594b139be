//! `leasehold run` as a command runner: what passes through, and what its exit codes say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use std::io::Write;
use std::process::Stdio;

use crate::stage::{Stage, code, eventually, printed, said};

#[test]
fn the_command_knows_its_fence_and_more() {
    let stage = Stage::sqlite();
    let first = stage.run(&["run", "demo", "--", "sh", "-c", "echo fence $LEASEHOLD_FENCE"]);
    assert_eq!(code(&first), 0, "{}", said(&first));
    assert_eq!(said(&first), "");
    let fence = |output| -> u64 {
        printed(output)
            .trim()
            .strip_prefix("fence ")
            .unwrap()
            .parse()
            .unwrap()
    };
    let second = stage.run(&["run", "demo", "--", "sh", "-c", "echo fence $LEASEHOLD_FENCE"]);
    assert!(fence(&second) > fence(&first));

    let all = stage.run(&["--holder", "me", "run", "--class", "workflow", "demo:1", "env"]);
    let all = printed(&all);
    for line in [
        "LEASEHOLD_NAME=demo:1".to_owned(),
        "LEASEHOLD_CLASS=workflow".to_owned(),
        "LEASEHOLD_HOLDER=me".to_owned(),
        format!("LEASEHOLD_STORE={}", stage.store()),
    ] {
        assert!(all.lines().any(|found| found == line), "{line} not in {all}");
    }
}

#[test]
fn an_outer_runs_fence_is_not_passed_as_ones_own() {
    let stage = Stage::sqlite();
    let nested = format!(
        "{0} run inner -- sh -c 'echo $LEASEHOLD_NAME $LEASEHOLD_FENCE'; echo $LEASEHOLD_NAME $LEASEHOLD_FENCE",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let output = stage.run(&["run", "-c", &nested, "outer"]);
    let (printed, said) = (printed(&output), said(&output));
    let lines: Vec<Vec<_>> = printed.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!((lines[0][0], lines[1][0]), ("inner", "outer"), "{printed}{said}");
    assert_ne!(lines[0][1], lines[1][1]);
}

/// trap 22, the parts about passing through; the rest is in `signals.rs`.
#[test]
fn trap_22_true_exit_code_and_stdin() {
    let stage = Stage::sqlite();
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
    ] {
        let output = stage.run(&["run", "-c", script, "demo"]);
        assert_eq!(code(&output), expected, "{script}: {}", said(&output));
        assert_eq!(said(&output), "", "{script}");
    }
    let mut cat = stage.command(&["run", "demo", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!((code(&output), printed(&output).as_str()), (0, "through\n"));
}

#[test]
fn a_command_that_cannot_run_is_told_as_env_does() {
    let stage = Stage::sqlite();
    let missing = stage.run(&["run", "demo", "--", "no-such-command"]);
    assert_eq!(code(&missing), 127);
    assert!(
        said(&missing).contains("no-such-command: there is no such command"),
        "{}",
        said(&missing)
    );
    stage.write("plain", "not a program");
    let plain = stage.run(&["run", "demo", "./plain"]);
    assert_eq!(code(&plain), 126, "{}", said(&plain));
    // And the lock is free again.
    assert_eq!(code(&stage.run(&["show", "demo"])), 1);
}

#[test]
fn options_end_at_the_command_and_there_is_no_shell() {
    let stage = Stage::sqlite();
    for args in [
        &["run", "demo", "echo", "-n", "--", "--ttl", "$HOME *"][..],
        &["run", "demo", "--", "echo", "-n", "--", "--ttl", "$HOME *"],
        &[
            "run", "-n", "--ttl", "3s", "demo", "echo", "-n", "--", "--ttl", "$HOME *",
        ],
    ] {
        let output = stage.run(args);
        assert_eq!(
            printed(&output),
            "-- --ttl $HOME *",
            "{args:?}: {}",
            said(&output)
        );
    }
    let shell = stage.run(&["run", "-c", "echo $((1 + 2)) $LEASEHOLD_NAME", "demo"]);
    assert_eq!(printed(&shell), "3 demo\n");
}

#[test]
fn busy_has_a_code_of_its_own() {
    let stage = Stage::sqlite();
    let mut first = stage.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo > up; while [ ! -e stop ]; do sleep 0.05; done",
        "demo",
    ]);
    eventually("the first to run", || stage.path("up").exists());
    let busy = stage.run(&["run", "-n", "demo", "touch", "ran"]);
    assert_eq!(code(&busy), 124);
    assert!(
        said(&busy).starts_with("leasehold: demo is held by first (class scheduler)"),
        "{}",
        said(&busy)
    );
    assert!(said(&busy).lines().count() <= 3);
    assert_eq!(
        code(&stage.run(&["run", "-n", "-E", "9", "demo", "touch", "ran"])),
        9
    );
    assert_eq!(
        code(&stage.run(&["run", "-w", "100ms", "demo", "touch", "ran"])),
        124
    );
    assert!(!stage.path("ran").exists());

    // One that waits gets in after the release.
    let mut second = stage.start(&["run", "-w", "50s", "demo", "touch", "ran"]);
    eventually("a waiter", || {
        printed(&stage.run(&["show", "demo", "-o", "jsonl"])).contains("\"waiters\":1")
    });
    assert!(!stage.path("ran").exists());
    stage.write("stop", "");
    assert_eq!((first.code(), second.code()), (0, 0));
    assert!(stage.path("ran").exists());
}

#[test]
fn bad_words_are_refused_before_anything_runs() {
    let stage = Stage::sqlite();
    for (args, advice) in [
        (
            &["run", "-w", "90", "demo", "touch", "ran"][..],
            "has no unit; write `90s`",
        ),
        (&["run", "--ttl", "3", "demo", "touch", "ran"], "no unit"),
        (&["run", "a b", "touch", "ran"], "must not contain ' '"),
        (
            &["run", "-s", "demo", "touch", "ran"],
            "not supported by this store yet",
        ),
        (&["run", "demo"], "no command"),
        (&["run"], "NAME"),
        (&["run", "-c", "touch ran", "demo", "touch", "ran"], "one string"),
        (
            &["run", "--class", "schedular", "demo", "touch", "ran"],
            "scheduler",
        ),
        (
            &["run", "-n", "-w", "1s", "demo", "touch", "ran"],
            "cannot be used with",
        ),
        (&["--holder", "a|b", "run", "demo", "touch", "ran"], "holder"),
        (
            &["--store", "mysql://u:hunter2@h", "run", "demo", "touch", "ran"],
            "redis://HOST",
        ),
        (
            &["--store", "redis://u:hunter2@h", "run", "demo", "touch", "ran"],
            "password_file",
        ),
        (
            &["--policies", "missing.toml", "run", "demo", "touch", "ran"],
            "missing.toml",
        ),
        // The arithmetic is shown.
        (
            &["run", "--ttl", "3s", "--stop-grace", "3s", "demo", "touch", "ran"],
            "ttl 3s - drift 50ms = 2.95s, and stop_grace 3s takes all of it",
        ),
    ] {
        let output = stage.run(args);
        let said = said(&output);
        assert_eq!(code(&output), 125, "{args:?}: {said}");
        assert!(said.contains(advice), "{args:?}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert!(!stage.path("ran").exists());
}

#[test]
fn without_a_store_or_a_home_it_says_what_to_do() {
    let stage = Stage::sqlite();
    let bare = |args: &[&str]| {
        let mut command = stage.command(args);
        command.env_remove("LEASEHOLD_STORE");
        command
    };
    let output = bare(&["run", "demo", "true"])
        .env_remove("HOME")
        .output()
        .unwrap();
    assert_eq!(code(&output), 125);
    assert!(said(&output).contains("--store"), "{}", said(&output));
    // With a home, the default is in its state folder.
    assert_eq!(code(&bare(&["run", "demo", "true"]).output().unwrap()), 0);
    assert!(stage.path(".local/state/leasehold/leasehold.db").exists());
    let output = bare(&["run", "demo", "true"])
        .env("XDG_STATE_HOME", stage.path("xdg"))
        .output()
        .unwrap();
    assert_eq!(code(&output), 0);
    assert!(stage.path("xdg/leasehold/leasehold.db").exists());
}

#[test]
fn a_policy_file_that_cannot_work_runs_nothing() {
    let stage = Stage::sqlite();
    for (text, advice) in [
        ("[class.scheduler]\nttl = 60\n", "leasehold.toml:2"),
        ("[class.scheduler]\nttl = \"60\"\n", "no unit"),
        ("[class.scheduler]\nttll = \"60s\"\n", "ttl"),
        (
            "[class.scheduler]\nttl = \"3s\"\nrenew.timeout = \"2s\"\n",
            "no retry fits before the deadline",
        ),
    ] {
        // Found without being named.
        stage.write("leasehold.toml", text);
        let output = stage.run(&["run", "demo", "touch", "ran"]);
        assert_eq!(code(&output), 125, "{text}: {}", said(&output));
        assert!(said(&output).contains(advice), "{text}: {}", said(&output));
    }
    assert!(!stage.path("ran").exists());
    stage.write("leasehold.toml", "[class.scheduler]\nttl = \"45s\"\n");
    let output = stage.run(&["run", "-c", "touch ran", "demo"]);
    assert!(stage.path("ran").exists(), "{}", said(&output));
}

#[test]
fn help_and_version() {
    let stage = Stage::sqlite();
    let help = stage.run(&["run", "--help"]);
    assert_eq!(code(&help), 0);
    for word in ["Exit codes:", "121", "LEASEHOLD_FENCE", "Examples:"] {
        assert!(printed(&help).contains(word), "{word}");
    }
    // A URL that should not have a password in it is not shown all the same.
    let mut command = stage.command(&["run", "--help"]);
    let help = command
        .env("LEASEHOLD_STORE", "redis://u:hunter2@h")
        .output()
        .unwrap();
    assert!(!printed(&help).contains("hunter2"));
    // The two processes that `run` uses are not for people.
    assert!(!printed(&stage.run(&["--help"])).contains("__g"));
    assert!(printed(&stage.run(&["--version"])).starts_with("leasehold 0."));
}

/// What happened, as numbers for node_exporter: there before the command runs, whole at any time, and with the end in it.
#[test]
fn metrics_go_to_a_file() {
    let stage = Stage::sqlite();
    let script = "cp m.prom before.prom; while [ ! -e stop ]; do sleep 0.02; done";
    let args = [
        "run",
        "--ttl",
        "1s",
        "--metrics-file",
        "m.prom",
        "-c",
        script,
        "job:42",
    ];
    // What has not happened is there as zero, or not at all.
    let counted = |text: &str, metric: &str, outcome: &str| -> f64 {
        let series = format!(
            "leasehold_{metric}_total{{store=\"sqlite\",class=\"scheduler\",namespace=\"job\",outcome=\"{outcome}\"}} "
        );
        let found = text.lines().find_map(|line| line.strip_prefix(&series));
        found.map_or(0.0, |value| value.parse().unwrap())
    };
    let mut run = stage.start(&args);
    eventually("a renewal in the file", || {
        counted(&stage.read("m.prom"), "renew", "renewed") > 0.0
    });
    assert_eq!(counted(&stage.read("m.prom"), "release", "released"), 0.0);
    stage.write("stop", "");
    assert_eq!(run.code(), 0, "{}", run.stderr());
    let (before, after) = (stage.read("before.prom"), stage.read("m.prom"));
    // Nothing had been counted when it was first written, or the grant only.
    assert!(
        stage.path("before.prom").exists() && counted(&before, "release", "released") == 0.0,
        "{before}"
    );
    assert!(
        after.contains("# TYPE leasehold_acquire_total counter"),
        "{after}"
    );
    assert_eq!(counted(&after, "acquire", "acquired"), 1.0, "{after}");
    assert_eq!(counted(&after, "release", "released"), 1.0, "{after}");
    assert!(!after.contains("job:42") && !after.contains("# EOF"), "{after}");
    // Nothing else is left in the folder that a collector reads, and it may read it.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(stage.path("m.prom")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o644);
    let left: Vec<_> = std::fs::read_dir(stage.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("m.prom"))
        .collect();
    assert_eq!(left, ["m.prom"]);
    // As Prometheus itself reads it.
    let mut check = std::process::Command::new("promtool")
        .args(["check", "metrics", "--extended"])
        .stdin(std::fs::File::open(stage.path("m.prom")).unwrap())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("promtool must be installed");
    assert!(
        check.wait().unwrap().code().is_some_and(|code| code != 1),
        "{after}"
    );
    // Busy is counted too, and a place that cannot be written is said before anything runs.
    let mut holding = stage.start(&[
        "run",
        "-c",
        "echo > held; while [ ! -e end ]; do sleep 0.02; done",
        "busy:1",
    ]);
    eventually("the holder", || stage.path("held").exists());
    let busy = stage.run(&["run", "-n", "--metrics-file", "b.prom", "busy:1", "true"]);
    assert_eq!(code(&busy), 124);
    assert!(
        stage.read("b.prom").contains("outcome=\"busy\""),
        "{}",
        stage.read("b.prom")
    );
    stage.write("end", "");
    assert_eq!(holding.code(), 0);
    let nowhere = stage.run(&[
        "run",
        "--metrics-file",
        "no/such/m.prom",
        "job:42",
        "touch",
        "ran",
    ]);
    assert_eq!((code(&nowhere), stage.path("ran").exists()), (125, false));
    assert!(said(&nowhere).contains("--metrics-file"), "{}", said(&nowhere));
}
