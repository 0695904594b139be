//! Signals, grandchildren and job control on a terminal.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::io::Write;
use std::process::{Command, Stdio};

use crate::fixture::{
    Fixture, RunningProcess, eventually, exit_code, is_running, is_signal_ignored, stdout_of,
};
use rustix::process::Signal;

const LOG_SIGNALS: &str = "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo $s >> log\" $s; done; \
                           echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 5";

#[test]
fn trap_22_signals_are_passed_on() {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        // A shell cannot trap a signal that was ignored at its start, and leasehold keeps it ignored:
        // see `nohup` below.
        if is_signal_ignored(signal) {
            continue;
        }
        let fixture = Fixture::sqlite();
        let mut run = fixture.start(&["run", "-c", LOG_SIGNALS, "demo"]);
        eventually("the command", || fixture.path("up").exists());
        run.signal(signal);
        assert_eq!(fixture.wait_for_line("log"), name);
        assert!(!run.has_ended());
        fixture.write("stop", "");
        assert_eq!(run.wait_exit_code(), 5);
        assert!(!run.stderr().contains("leasehold:"), "{}", run.stderr());
    }
}

#[test]
fn a_second_int_or_term_kills() {
    let fixture = Fixture::sqlite();
    let mut run = fixture.start(&["run", "-c", LOG_SIGNALS, "demo"]);
    eventually("the command", || fixture.path("up").exists());
    run.signal(Signal::TERM);
    assert_eq!(fixture.wait_for_line("log"), "TERM");
    run.signal(Signal::TERM);
    assert_eq!(run.wait_exit_code(), 128 + 9);
    assert_eq!(fixture.read("log"), "TERM\n");
    // The operator ended it, so the lock was released.
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 1);
}

#[test]
fn dying_of_a_signal_is_128_and_its_number() {
    let fixture = Fixture::sqlite();
    let mut run = fixture.start(&["run", "-c", "echo > up; exec sleep 1000", "demo"]);
    eventually("the command", || fixture.path("up").exists());
    run.signal(Signal::USR1);
    assert_eq!(run.wait_exit_code(), 128 + Signal::USR1.as_raw());
}

#[test]
fn a_signal_while_waiting_cancels_the_request() {
    let fixture = Fixture::sqlite();
    let _first = fixture.start(&["run", "-c", "echo > up; exec sleep 1000", "demo"]);
    eventually("the first", || fixture.path("up").exists());
    let mut second = fixture.start(&["run", "-w", "50s", "demo", "touch", "ran"]);
    let shown = || stdout_of(&fixture.run(&["show", "demo", "-o", "jsonl"]));
    eventually("a waiter", || shown().contains("\"waiters\":1"));
    second.signal(Signal::TERM);
    assert_eq!(second.wait_exit_code(), 128 + 15);
    // The registration is gone when the process ends, not later when it expires.
    assert!(shown().contains("\"waiters\":0"), "{}", shown());
    assert!(!fixture.path("ran").exists());
}

/// A signal that was ignored at the start stays ignored, for leasehold and for the command.
#[test]
fn nohup_is_respected() {
    let fixture = Fixture::sqlite();
    let mut command = Command::new("nohup");
    let inner = fixture.command(&[
        "run",
        "-c",
        "echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 5",
        "demo",
    ]);
    command
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(fixture.path(""))
        .env("LEASEHOLD_STORE", fixture.store())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("the command", || fixture.path("up").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    fixture.write("stop", "");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

/// Three descendants: one stays in the group and ignores TERM, one leaves the group, one leaves it as a
/// double-forked orphan.
const LEAVE_PROCESSES_BEHIND: &str = "sh -c 'trap \"\" TERM; echo $$ > stays; while :; do sleep 1; done' & \
    setsid sh -c 'echo $$ > leaves; exec sleep 1000' & \
    sh -c '(setsid sh -c \"echo \\$\\$ > orphan; exec sleep 1000\" &)' ; \
    while [ ! -s stays ] || [ ! -s leaves ] || [ ! -s orphan ]; do sleep 0.02; done; ";

#[test]
fn trap_22_grandchildren_end_before_the_release() {
    let fixture = Fixture::sqlite();
    let script = format!("{LEAVE_PROCESSES_BEHIND} exit 3");
    let mut run = fixture.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    assert_eq!(run.wait_exit_code(), 3, "{}", run.stderr());
    for file in ["stays", "leaves", "orphan"] {
        assert!(!is_running(fixture.pid(file)), "{file}");
    }
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 1);
}

#[test]
fn trap_22_grandchildren_end_when_leasehold_is_killed() {
    let fixture = Fixture::sqlite();
    let script = format!("{LEAVE_PROCESSES_BEHIND} echo > up; sleep 1000");
    let mut run = fixture.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    eventually("all of them", || fixture.path("up").exists());
    run.signal(Signal::KILL);
    assert_eq!(run.wait_exit_code(), -9);
    for file in ["stays", "leaves", "orphan"] {
        let pid = fixture.pid(file);
        eventually(&format!("the end of {file}"), || !is_running(pid));
    }
}

/// Runs a line on a pseudo-terminal made by `script`, and types each text after its cue.
fn run_on_terminal(fixture: &Fixture, line: &str, typed: &[(&str, &str)]) -> (i32, String) {
    let inner = fixture.command(&[]);
    let mut command = Command::new("script");
    command
        .args(["-qefc", line, "/dev/null"])
        .current_dir(fixture.path(""))
        .env("LEASEHOLD_STORE", fixture.store())
        .env("LEASEHOLD", inner.get_program())
        .env("SHELL", "/bin/sh")
        // No escape sequences in the output.
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(fixture.path("screen")).unwrap());
    let mut terminal =
        RunningProcess::from_child(command.stderr(Stdio::null()).spawn().unwrap(), fixture.path("screen"));
    let mut keyboard = terminal.child.stdin.take().unwrap();
    for (wait_for, keys) in typed {
        eventually(wait_for, || fixture.read("screen").contains(wait_for));
        keyboard.write_all(keys.as_bytes()).unwrap();
        keyboard.flush().unwrap();
    }
    (terminal.wait_exit_code(), fixture.read("screen"))
}

#[test]
fn a_command_can_read_from_the_terminal_and_gives_it_back() {
    let fixture = Fixture::sqlite();
    let (code, screen) = run_on_terminal(
        &fixture,
        "$LEASEHOLD run demo -- sh -c 'echo ask-one; read x; echo got-$x'; echo ask-two; read y; echo back-$y",
        &[("ask-one", "1\n"), ("ask-two", "2\n")],
    );
    assert!(screen.contains("got-1") && screen.contains("back-2"), "{screen}");
    assert_eq!(code, 0);
}

#[test]
fn the_keyboard_interrupts_the_command() {
    let fixture = Fixture::sqlite();
    // Input typed between a shell's fork and exec gets lost, so this command starts no other program.
    let (_, screen) = run_on_terminal(
        &fixture,
        "$LEASEHOLD run demo -- sh -c 'echo r-eady; read x'; echo code-$?",
        &[("r-eady", "\x03")],
    );
    assert!(screen.contains("code-130"), "{screen}");
}

/// In a shell with job control, ctrl-Z stops leasehold and its command, and `fg` continues both.
#[test]
fn the_keyboard_suspends_and_fg_continues() {
    let fixture = Fixture::sqlite();
    // Quotes inside words, so that the echo of the typed line is not mistaken for output.
    let (_, screen) = run_on_terminal(
        &fixture,
        "PS1='pr''ompt ' bash --norc --noprofile -i",
        &[
            ("prompt", "$LEASEHOLD run demo -- sh -c 'echo as''k; read x; echo go''t-$x'\n"),
            ("ask", "\x1a"),
            ("Stopped", "fg\n"),
            // `fg` prints the command line of the job.
            ("\n$LEASEHOLD run", "1\n"),
            ("got-1", "exit\n"),
        ],
    );
    assert!(screen.contains("got-1"), "{screen}");
}

#[test]
fn waiting_is_shown_on_a_terminal() {
    let fixture = Fixture::sqlite();
    let _first = fixture.start(&["--holder", "first", "run", "-c", "echo > up; exec sleep 1000", "demo"]);
    eventually("the first", || fixture.path("up").exists());
    let (code, screen) = run_on_terminal(&fixture, "$LEASEHOLD run -w 2s demo -- true", &[]);
    assert!(screen.contains("waiting for demo, held by first for "), "{screen}");
    assert_eq!(code, 124);
}
