//! The guardian: it ends the command when leasehold itself is killed or stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{
    BEAT_SCRIPT, Fixture, RunningProcess, StoppedProcess, eventually, exit_code, guardian_of, is_running,
    last_beat, signal_group, stderr_of,
};
use leasehold::{Fence, Name};
use leasehold_fence::sqlite;
use rusqlite::Connection;
use rustix::process::Signal;

/// Starts a command that writes its pid, and then a heartbeat until it is killed.
fn start_beating(fixture: &Fixture, ttl: &str) -> RunningProcess {
    let script =
        format!("echo $LEASEHOLD_FENCE > fence1; echo $$ > pid1; {}", BEAT_SCRIPT.replace("$1", "beats"));
    let run = fixture.start(&["--holder", "first", "run", "--ttl", ttl, "-c", &script, "demo"]);
    fixture.pid("pid1");
    eventually("beats", || fixture.read("beats").lines().count() > 2);
    run
}

/// Starts a second `run` that waits for the lock and writes its start time to `began`.
fn start_waiter(fixture: &Fixture) -> RunningProcess {
    let script = "read up rest < /proc/uptime; echo $LEASEHOLD_FENCE > fence2; echo $up > began";
    fixture.start(&["run", "-w", "50s", "--ttl", "3s", "-c", script, "demo"])
}

/// Asserts from the commands' own timestamps that the first ended before the second began.
fn assert_one_after_the_other(fixture: &Fixture) {
    let (last, began) =
        (last_beat(&fixture.read("beats")), fixture.wait_for_line("began").parse::<f64>().unwrap());
    assert!(last < began, "the first beat at {last}, the second began at {began}");
    assert!(!is_running(fixture.pid("pid1")));
}

#[test]
fn kill_9_of_leasehold_ends_the_command_and_frees_the_lock_after_the_ttl() {
    let fixture = Fixture::sqlite();
    let mut first = start_beating(&fixture, "6s");
    first.signal(Signal::KILL);
    assert_eq!(first.wait_exit_code(), -9);
    let pid = fixture.pid("pid1");
    eventually("the end of the command", || !is_running(pid));
    // The lease was not released: it was renewed every 2 s, so at least 4 s were left.
    let busy = fixture.run(&["run", "-n", "demo", "true"]);
    assert_eq!(exit_code(&busy), 124, "{}", stderr_of(&busy));
    first.wait_for_stderr("its guardian has ended the command");
    let mut second = start_waiter(&fixture);
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    assert_one_after_the_other(&fixture);
}

#[test]
fn leasehold_alone_is_stopped_and_its_command_ended_in_time() {
    let fixture = Fixture::sqlite();
    let mut first = start_beating(&fixture, "3s");
    first.signal(Signal::STOP);
    let mut second = start_waiter(&fixture);
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    assert_one_after_the_other(&fixture);
    // When it resumes, it finds the hold lost.
    first.signal(Signal::CONT);
    assert_eq!(first.wait_exit_code(), 121, "{}", first.stderr());
    let message = first.stderr();
    assert!(message.contains("lost the lease on demo") && message.lines().count() <= 3, "{message}");
}

/// Leasehold and its command are stopped past the TTL. The command dies before its next step, and its
/// fence is refused.
#[test]
fn trap_05_stopped_past_the_ttl_then_continued() {
    let fixture = Fixture::sqlite();
    let mut first = start_beating(&fixture, "3s");
    let group = fixture.pid("pid1");
    first.signal(Signal::STOP);
    signal_group(group, Signal::STOP);
    let mut second = start_waiter(&fixture);
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    let beats = fixture.read("beats");
    first.signal(Signal::CONT);
    let _ = rustix::process::kill_process_group(group, Signal::CONT);
    assert_eq!(first.wait_exit_code(), 121, "{}", first.stderr());
    assert_eq!(fixture.read("beats"), beats, "it took a step after it woke up");
    assert_one_after_the_other(&fixture);

    let mut db = Connection::open(fixture.path("target.db")).unwrap();
    sqlite::install(&db).unwrap();
    let name = Name::new("demo").unwrap();
    let mut write = |file: &str| {
        let fence: Fence = fixture.wait_for_line(file).parse().unwrap();
        let tx = db.transaction().unwrap();
        let verdict = sqlite::admit(&tx, &name, fence).unwrap();
        tx.commit().unwrap();
        verdict.is_admitted()
    };
    assert!(write("fence2"), "the second owner is admitted");
    assert!(!write("fence1"), "the first owner's fence is stale");
}

/// The guardian does not depend on leasehold's session, process group or signals.
#[test]
fn the_guardian_is_isolated_and_replaced_when_it_dies() {
    let fixture = Fixture::sqlite();
    let mut run = start_beating(&fixture, "3s");
    let guardian = guardian_of(&run);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        rustix::process::kill_process(guardian, signal).unwrap();
        eventually("the signal to be held back", || has_pending_signal(guardian, signal));
    }
    assert_ne!(session_of(guardian), session_of(run.pid()));
    rustix::process::kill_process(guardian, Signal::KILL).unwrap();
    run.wait_for_stderr("the guardian process died and was replaced");
    assert!(is_running(fixture.pid("pid1")));
    // The new guardian ends the command as the old one would have.
    let new = guardian_of(&run);
    assert_ne!(new, guardian);
    run.signal(Signal::KILL);
    assert_eq!(run.wait_exit_code(), -9);
    let pid = fixture.pid("pid1");
    eventually("the end of the command", || !is_running(pid));
    eventually("the end of the guardian", || !is_running(new));
}

#[test]
fn an_idle_guardian_ends_with_its_command() {
    let fixture = Fixture::sqlite();
    let mut run =
        fixture.start(&["run", "-c", "echo > up; while [ ! -e stop ]; do sleep 0.02; done", "demo"]);
    eventually("the command", || fixture.path("up").exists());
    let guardian = guardian_of(&run);
    fixture.write("stop", "");
    assert_eq!((run.wait_exit_code(), run.stderr().as_str()), (0, ""));
    assert!(!is_running(guardian));
}

/// In a class with `continue`, a stopped leasehold does not end the command; a dead one does.
#[test]
fn a_continue_class_is_ended_by_death_only() {
    let fixture = Fixture::sqlite();
    let script = format!("echo $$ > pid1; {}", BEAT_SCRIPT.replace("$1", "beats"));
    let mut run = fixture.start(&["run", "--class", "workflow", "--ttl", "2s", "-c", &script, "demo"]);
    let pid = fixture.pid("pid1");
    run.signal(Signal::STOP);
    // Another client gets the lock, so the lease has expired.
    let second = fixture.run(&["run", "-w", "50s", "demo", "true"]);
    assert_eq!(exit_code(&second), 0, "{}", stderr_of(&second));
    assert!(is_running(pid));
    run.signal(Signal::KILL);
    assert_eq!(run.wait_exit_code(), -9);
    eventually("the end of the command", || !is_running(pid));
}

/// The command never runs without a guardian. Its gate opens only on an explicit byte, not when the pipe
/// closes, and not for an orphan.
#[test]
fn the_gate_opens_only_on_its_parents_signal() {
    let fixture = Fixture::sqlite();
    let me = std::process::id().to_string();
    let try_gate = |parent: &str, word: &str| {
        fixture.write("word", word);
        let mut command = fixture.command(&["__supervise", "gate", "0", parent, "touch", "ran"]);
        command.stdin(std::fs::File::open(fixture.path("word")).unwrap());
        (exit_code(&command.output().unwrap()), fixture.path("ran").exists())
    };
    assert_eq!(try_gate(&me, ""), (125, false));
    assert_eq!(try_gate(&me, "x"), (125, false));
    assert_eq!(try_gate("1", "g"), (125, false));
    assert_eq!(try_gate(&me, "g"), (0, true));
}

/// Whether the signal is pending for this process.
fn has_pending_signal(pid: rustix::process::Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

// Not by `getsid`, which returns 0 for a session whose leader is outside the container.
fn session_of(pid: rustix::process::Pid) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let (_, after_command) = stat.rsplit_once(')').unwrap();
    after_command.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// Leasehold, guardian and command are suspended past the deadline, as by a closed laptop or a debugger.
/// The command never resumes, and the report names the true cause.
#[test]
fn suspended_past_the_deadline_the_command_never_continues() {
    let fixture = Fixture::sqlite();
    let mut run = start_beating(&fixture, "2s");
    let (pid, guardian) = (fixture.pid("pid1"), guardian_of(&run));
    let leasehold = StoppedProcess::new(run.pid());
    let guardian = StoppedProcess::new(guardian);
    signal_group(pid, Signal::STOP);
    eventually("the lease to be over", || exit_code(&fixture.run(&["show", "demo"])) == 1);
    let beats = fixture.read("beats");
    drop(leasehold);
    eventually("the command to be killed", || !is_running(pid));
    drop(guardian);
    assert_eq!(run.wait_exit_code(), 121, "{}", run.stderr());
    let message = run.stderr();
    assert!(
        message.contains("suspended past its deadline together with leasehold")
            && message.lines().count() <= 3,
        "{message}"
    );
    assert_eq!(fixture.read("beats"), beats, "nothing was done after the deadline");
}
