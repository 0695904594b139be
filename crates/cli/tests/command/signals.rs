//! Signals, grandchildren and the terminal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use std::io::Write;
use std::process::{Command, Stdio};

use crate::stage::{Running, Stage, alive, code, eventually, ignored_here, printed};
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
        // A shell cannot trap what was ignored when it began, and leasehold leaves it alone: see `nohup` below.
        if ignored_here(signal) {
            continue;
        }
        let stage = Stage::sqlite();
        let mut run = stage.start(&["run", "-c", LOG_SIGNALS, "demo"]);
        eventually("the command", || stage.path("up").exists());
        run.signal(signal);
        assert_eq!(stage.line("log"), name);
        assert!(!run.ended());
        stage.write("stop", "");
        assert_eq!(run.code(), 5);
        assert!(!run.stderr().contains("leasehold:"), "{}", run.stderr());
    }
}

#[test]
fn a_second_int_or_term_kills() {
    let stage = Stage::sqlite();
    let mut run = stage.start(&["run", "-c", LOG_SIGNALS, "demo"]);
    eventually("the command", || stage.path("up").exists());
    run.signal(Signal::TERM);
    assert_eq!(stage.line("log"), "TERM");
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 128 + 9);
    assert_eq!(stage.read("log"), "TERM\n");
    // It was the operator's doing, so the lock was given back.
    assert_eq!(code(&stage.run(&["show", "demo"])), 1);
}

#[test]
fn dying_of_a_signal_is_128_and_its_number() {
    let stage = Stage::sqlite();
    let mut run = stage.start(&["run", "-c", "echo > up; exec sleep 1000", "demo"]);
    eventually("the command", || stage.path("up").exists());
    run.signal(Signal::USR1);
    assert_eq!(run.code(), 128 + Signal::USR1.as_raw());
}

#[test]
fn a_signal_while_waiting_takes_the_ask_back() {
    let stage = Stage::sqlite();
    let _first = stage.start(&["run", "-c", "echo > up; exec sleep 1000", "demo"]);
    eventually("the first", || stage.path("up").exists());
    let mut second = stage.start(&["run", "-w", "50s", "demo", "touch", "ran"]);
    let shown = || printed(&stage.run(&["show", "demo", "-o", "jsonl"]));
    eventually("a waiter", || shown().contains("\"waiters\":1"));
    second.signal(Signal::TERM);
    assert_eq!(second.code(), 128 + 15);
    // Not some time later, when its registration runs out: by its end.
    assert!(shown().contains("\"waiters\":0"), "{}", shown());
    assert!(!stage.path("ran").exists());
}

/// What was ignored when we began stays ignored, for us and for the command.
#[test]
fn nohup_is_respected() {
    let stage = Stage::sqlite();
    let mut command = Command::new("nohup");
    let inner = stage.command(&[
        "run",
        "-c",
        "echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 5",
        "demo",
    ]);
    command
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(stage.path(""))
        .env("LEASEHOLD_STORE", stage.store())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("the command", || stage.path("up").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    stage.write("stop", "");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

/// One stays in the group and ignores TERM, one leaves the group, one leaves it as an orphan of an orphan.
const LEAVE_BEHIND: &str = "sh -c 'trap \"\" TERM; echo $$ > stays; while :; do sleep 1; done' & \
    setsid sh -c 'echo $$ > leaves; exec sleep 1000' & \
    sh -c '(setsid sh -c \"echo \\$\\$ > orphan; exec sleep 1000\" &)' ; \
    while [ ! -s stays ] || [ ! -s leaves ] || [ ! -s orphan ]; do sleep 0.02; done; ";

#[test]
fn trap_22_grandchildren_end_before_the_release() {
    let stage = Stage::sqlite();
    let script = format!("{LEAVE_BEHIND} exit 3");
    let mut run = stage.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    assert_eq!(run.code(), 3, "{}", run.stderr());
    for file in ["stays", "leaves", "orphan"] {
        assert!(!alive(stage.pid(file)), "{file}");
    }
    assert_eq!(code(&stage.run(&["show", "demo"])), 1);
}

#[test]
fn trap_22_grandchildren_end_when_leasehold_is_killed() {
    let stage = Stage::sqlite();
    let script = format!("{LEAVE_BEHIND} echo > up; sleep 1000");
    let mut run = stage.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    eventually("all of them", || stage.path("up").exists());
    run.signal(Signal::KILL);
    assert_eq!(run.code(), -9);
    for file in ["stays", "leaves", "orphan"] {
        let pid = stage.pid(file);
        eventually(&format!("the end of {file}"), || !alive(pid));
    }
}

/// `script` gives us a terminal of our own to type on.
fn on_a_terminal(stage: &Stage, line: &str, typed: &[(&str, &str)]) -> (i32, String) {
    let inner = stage.command(&[]);
    let mut command = Command::new("script");
    command
        .args(["-qefc", line, "/dev/null"])
        .current_dir(stage.path(""))
        .env("LEASEHOLD_STORE", stage.store())
        .env("LEASEHOLD", inner.get_program())
        .env("SHELL", "/bin/sh")
        // Without escape sequences between what is printed.
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(stage.path("screen")).unwrap());
    let mut terminal = Running::of(
        command.stderr(Stdio::null()).spawn().unwrap(),
        stage.path("screen"),
    );
    let mut keyboard = terminal.child.stdin.take().unwrap();
    for (wait_for, keys) in typed {
        eventually(wait_for, || stage.read("screen").contains(wait_for));
        keyboard.write_all(keys.as_bytes()).unwrap();
        keyboard.flush().unwrap();
    }
    (terminal.code(), stage.read("screen"))
}

#[test]
fn a_command_can_read_from_the_terminal_and_gives_it_back() {
    let stage = Stage::sqlite();
    let (code, screen) = on_a_terminal(
        &stage,
        "$LEASEHOLD run demo -- sh -c 'echo ask-one; read x; echo got-$x'; echo ask-two; read y; echo back-$y",
        &[("ask-one", "1\n"), ("ask-two", "2\n")],
    );
    assert!(screen.contains("got-1") && screen.contains("back-2"), "{screen}");
    assert_eq!(code, 0);
}

#[test]
fn the_keyboard_interrupts_the_command() {
    let stage = Stage::sqlite();
    // A shell that has just forked loses what is typed before the other program is there: this one starts none.
    let (_, screen) = on_a_terminal(
        &stage,
        "$LEASEHOLD run demo -- sh -c 'echo r-eady; read x'; echo code-$?",
        &[("r-eady", "\x03")],
    );
    assert!(screen.contains("code-130"), "{screen}");
}

/// A shell that waits for its job: ctrl-Z stops us with the command, `fg` lets both go on.
#[test]
fn the_keyboard_suspends_and_fg_continues() {
    let stage = Stage::sqlite();
    // Quotes in the middle of words, so that the echo of what is typed is not taken for what is printed.
    let (_, screen) = on_a_terminal(
        &stage,
        "PS1='pr''ompt ' bash --norc --noprofile -i",
        &[
            (
                "prompt",
                "$LEASEHOLD run demo -- sh -c 'echo as''k; read x; echo go''t-$x'\n",
            ),
            ("ask", "\x1a"),
            ("Stopped", "fg\n"),
            // The shell repeats the job's line when it puts it forward.
            ("\n$LEASEHOLD run", "1\n"),
            ("got-1", "exit\n"),
        ],
    );
    assert!(screen.contains("got-1"), "{screen}");
}

#[test]
fn waiting_is_told_on_a_terminal() {
    let stage = Stage::sqlite();
    let _first = stage.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo > up; exec sleep 1000",
        "demo",
    ]);
    eventually("the first", || stage.path("up").exists());
    let (code, screen) = on_a_terminal(&stage, "$LEASEHOLD run -w 2s demo -- true", &[]);
    assert!(
        screen.contains("waiting for demo, held by first for "),
        "{screen}"
    );
    assert_eq!(code, 124);
}
