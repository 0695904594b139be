//! The command `simulate`: exit codes, signals, refused arguments, and the commands of its page.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn simulate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    command.args(args);
    command
}

/// Runs the command; returns its exit code and standard error.
fn run_with_stdout(args: &[&str], out: Stdio) -> (i32, String) {
    let ended =
        simulate(args).stdout(out).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code().unwrap_or(-1), err)
}

/// A pipe whose read end is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_violation_is_exit_1_although_its_history_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("history.jsonl");
    let path = path.display().to_string();
    let args = ["--mistake", "unfenced-target", "--history", &path];
    let (code, err) = run_with_stdout(&args, Stdio::null());
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("cannot write"), "{err}");
    assert_eq!(run_with_stdout(&args, closed_pipe()).0, 1);
}

#[test]
fn a_simulation_ends_with_ctrl_c() {
    let mut running =
        simulate(&["--seeds", "1000000000"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(running.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(2), "{line}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    for (args, named) in [
        (["--threads", "1000000"], "--threads"),
        (["--threads", "0"], "--threads"),
        (["--seeds", "0"], "--seeds"),
        (["--mistake", "missing"], "there is no mistake"),
    ] {
        let (code, err) = run_with_stdout(&args, Stdio::null());
        assert!(code == 2 && err.contains(named), "{args:?}: {code}, {err}");
    }
}

/// Runs each command of the page, with fewer histories. A known mistake must be found: exit code 1.
#[test]
fn the_commands_of_the_page_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proof/simulation.md");
    let text = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cargo xtask simulate ") else {
            continue;
        };
        seen += 1;
        let words = rest.split_once('#').map_or(rest, |(words, _)| words);
        let fewer = |word| match word {
            "2000" => "20",
            "200" | "300" | "50000" => "5",
            word => word,
        };
        let mut args: Vec<_> = words.split_whitespace().map(fewer).collect();
        let mistake = args.contains(&"--mistake");
        if mistake {
            args.extend(["--seeds", "200"]);
        }
        let ended = simulate(&args).current_dir(folder.path()).output().unwrap();
        assert_eq!(ended.status.code(), Some(i32::from(mistake)), "{line}: {ended:?}");
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert!(!mistake || printed.contains("\nrepeat: cargo xtask simulate --from "), "{printed}");
    }
    assert_eq!(seen, 6, "the page shows six commands");
}
