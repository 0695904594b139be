//! Runs the commands of the README: each line of its first and of its large command block, as written.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use std::path::Path;
use std::process::Command;

use crate::fixture::{Fixture, eventually, exit_code, stderr_of};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

const README: &str = include_str!("../../../../README.md");

/// The lines of the command block after this heading, without their comments.
fn commands(heading: &str) -> Vec<&'static str> {
    let behind = README.split_once(heading).unwrap().1;
    let block = behind.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let lines = block.lines().map(|line| line.split_once("  #").map_or(line, |(command, _)| command).trim());
    lines.filter(|line| !line.is_empty()).collect()
}

/// A fixture with the scripts that the README's commands start.
fn fixture_with_scripts() -> Fixture {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::sqlite();
    for script in ["nightly-report", "step", "billing", "report"] {
        fixture.write(script, "#!/bin/sh\necho \"ran $LEASEHOLD_NAME $LEASEHOLD_FENCE\"\n");
        std::fs::set_permissions(fixture.path(script), PermissionsExt::from_mode(0o755)).unwrap();
    }
    fixture
}

fn shell(fixture: &Fixture, line: &str) -> std::process::Output {
    let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command: Command = fixture.command(&[]);
    let envs: Vec<_> =
        command.get_envs().map(|(key, value)| (key.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = Command::new("bash");
    for (key, value) in envs {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command
        .args(["-c", line])
        .current_dir(fixture.path("."))
        .env("PATH", format!("{}:{path}", bin.display()))
        .output()
        .unwrap()
}

#[test]
fn the_first_commands_work() {
    let lines = commands("# Leasehold");
    assert!(lines.contains(&"scripts/test"), "{lines:?}");
    let fixture = fixture_with_scripts();
    let run = lines.iter().find(|line| line.starts_with("cargo run")).unwrap();
    let output = shell(&fixture, &run.replace("cargo run --release --", "leasehold"));
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    assert!(output.stdout.starts_with(b"fence 1"), "{output:?}");
}

#[test]
fn the_commands_work() {
    let lines = commands("## The command");
    assert!(lines.len() >= 10, "{lines:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redis = runtime.block_on(RedisServer::start()).unwrap();
    let fixture = fixture_with_scripts();
    let mut tried = 0;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (change, expected): (&dyn Fn(&str) -> String, i32) = match words[..] {
            // The lock is free in this test.
            ["leasehold", "show", ..] => (&str::to_owned, 1),
            ["leasehold", "break", ..] => (&str::to_owned, 1),
            ["leasehold", "watch;", ..] => (&|line| line.replace("watch;", "watch --for 50ms;"), 0),
            ["eval", ..] => (&|line| line.replace("…;", ""), 0),
            ["leasehold", "dev"] => {
                check_dev_server(&fixture);
                continue;
            }
            // Takes minutes; drill.rs runs it.
            ["leasehold", "drill", ..] => (&|line| line.replace("drill run", "drill run --help"), 0),
            ["leasehold", ..] if line.contains("redis://127.0.0.1") => {
                (&|line| line.replace("redis://127.0.0.1", &redis.url()), 0)
            }
            ["leasehold", "run" | "list" | "elect" | "doctor" | "job", ..] => (&str::to_owned, 0),
            // An unlisted command: its verb must exist at least.
            ["leasehold", verb, ..] => {
                let help = fixture.run(&[verb, "--help"]);
                assert_eq!(exit_code(&help), 0, "{line}");
                continue;
            }
            _ => continue,
        };
        let output = shell(&fixture, &change(line));
        assert_eq!(exit_code(&output), expected, "{line}: {}", stderr_of(&output));
        if line.contains("-- ./") && !line.contains("submit") {
            assert!(output.stdout.starts_with(b"ran "), "{line}: {output:?}");
        }
        tried += 1;
    }
    assert!(tried >= 10, "{tried}");
}

/// `leasehold dev` serves until stopped, and the commands that it suggests work.
fn check_dev_server(fixture: &Fixture) {
    let mut dev = fixture.start(&["dev", "--listen", "127.0.0.1:0"]);
    eventually("the daemon", || {
        dev.stdout().contains("to try in another terminal") && dev.stdout().ends_with('\n')
    });
    let message = dev.stdout();
    let proposed: Vec<&str> = message.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(proposed.len(), 3, "{message}");
    for line in proposed {
        let output = shell(fixture, &line.replace("sleep 30", "true").replace("curl -s", "curl -fs"));
        assert_eq!(exit_code(&output), 0, "{line}: {output:?}");
        assert!(!output.stdout.is_empty(), "{line}");
    }
    dev.signal(Signal::INT);
    assert_eq!(dev.wait_exit_code(), 0, "{}", dev.stderr());
}
