//! What the guardian is for: leasehold itself is killed or stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::stage::{
    BEAT, Frozen, Running, Stage, alive, code, eventually, guardian_of, last_beat, said, signal_group,
};
use leasehold::{Fence, Name};
use leasehold_fence::sqlite;
use rusqlite::Connection;
use rustix::process::Signal;

/// Beats until it is killed, and says who it is.
fn start_beating(stage: &Stage, ttl: &str) -> Running {
    let script = format!(
        "echo $LEASEHOLD_FENCE > fence1; echo $$ > pid1; {}",
        BEAT.replace("$1", "beats")
    );
    let run = stage.start(&["--holder", "first", "run", "--ttl", ttl, "-c", &script, "demo"]);
    stage.pid("pid1");
    eventually("beats", || stage.read("beats").lines().count() > 2);
    run
}

/// Waits for the lock; the time at which its command began is in `began`.
fn start_second(stage: &Stage) -> Running {
    let script = "read up rest < /proc/uptime; echo $LEASEHOLD_FENCE > fence2; echo $up > began";
    stage.start(&["run", "-w", "50s", "--ttl", "3s", "-c", script, "demo"])
}

/// By the commands' own account, the first's last act was before the second's first.
fn assert_one_after_the_other(stage: &Stage) {
    let (last, began) = (
        last_beat(&stage.read("beats")),
        stage.line("began").parse::<f64>().unwrap(),
    );
    assert!(
        last < began,
        "the first beat at {last}, the second began at {began}"
    );
    assert!(!alive(stage.pid("pid1")));
}

#[test]
fn kill_9_of_leasehold_ends_the_command_and_frees_the_lock_after_the_ttl() {
    let stage = Stage::sqlite();
    let mut first = start_beating(&stage, "6s");
    first.signal(Signal::KILL);
    assert_eq!(first.code(), -9);
    let pid = stage.pid("pid1");
    eventually("the end of the command", || !alive(pid));
    // Nobody has given the lease back: it was renewed every 2 s, so at least 4 s were left.
    let busy = stage.run(&["run", "-n", "demo", "true"]);
    assert_eq!(code(&busy), 124, "{}", said(&busy));
    first.says("its guardian has ended the command");
    let mut second = start_second(&stage);
    assert_eq!(second.code(), 0, "{}", second.stderr());
    assert_one_after_the_other(&stage);
}

#[test]
fn leasehold_alone_is_stopped_and_its_command_ended_in_time() {
    let stage = Stage::sqlite();
    let mut first = start_beating(&stage, "3s");
    first.signal(Signal::STOP);
    let mut second = start_second(&stage);
    assert_eq!(second.code(), 0, "{}", second.stderr());
    assert_one_after_the_other(&stage);
    // When it wakes up it knows.
    first.signal(Signal::CONT);
    assert_eq!(first.code(), 121, "{}", first.stderr());
    let said = first.stderr();
    assert!(
        said.contains("lost the lease on demo") && said.lines().count() <= 3,
        "{said}"
    );
}

/// Both are stopped past the TTL: the command is dead before it can take one more step, and its fence is refused.
#[test]
fn trap_05_stopped_past_the_ttl_then_continued() {
    let stage = Stage::sqlite();
    let mut first = start_beating(&stage, "3s");
    let group = stage.pid("pid1");
    first.signal(Signal::STOP);
    signal_group(group, Signal::STOP);
    let mut second = start_second(&stage);
    assert_eq!(second.code(), 0, "{}", second.stderr());
    let beats = stage.read("beats");
    first.signal(Signal::CONT);
    let _ = rustix::process::kill_process_group(group, Signal::CONT);
    assert_eq!(first.code(), 121, "{}", first.stderr());
    assert_eq!(stage.read("beats"), beats, "it took a step after it woke up");
    assert_one_after_the_other(&stage);

    let mut db = Connection::open(stage.path("target.db")).unwrap();
    sqlite::install(&db).unwrap();
    let name = Name::new("demo").unwrap();
    let mut write = |file: &str| {
        let fence: Fence = stage.line(file).parse().unwrap();
        let tx = db.transaction().unwrap();
        let verdict = sqlite::admit(&tx, &name, fence).unwrap();
        tx.commit().unwrap();
        verdict.is_admitted()
    };
    assert!(write("fence2"), "the second owner is admitted");
    assert!(!write("fence1"), "the first owner's fence is stale");
}

/// The guardian does not hang on leasehold's session, group or signals.
#[test]
fn the_guardian_is_out_of_reach_and_is_replaced_when_it_dies() {
    let stage = Stage::sqlite();
    let mut run = start_beating(&stage, "3s");
    let guardian = guardian_of(&run);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        rustix::process::kill_process(guardian, signal).unwrap();
        eventually("the signal to be held back", || pending(guardian, signal));
    }
    assert_ne!(session_of(guardian), session_of(run.pid()));
    rustix::process::kill_process(guardian, Signal::KILL).unwrap();
    run.says("the guardian process died and was replaced");
    assert!(alive(stage.pid("pid1")));
    // The new one does what the old one would have done.
    let new = guardian_of(&run);
    assert_ne!(new, guardian);
    run.signal(Signal::KILL);
    assert_eq!(run.code(), -9);
    let pid = stage.pid("pid1");
    eventually("the end of the command", || !alive(pid));
    eventually("the end of the guardian", || !alive(new));
}

#[test]
fn a_quiet_guardian_leaves_with_its_command() {
    let stage = Stage::sqlite();
    let mut run = stage.start(&[
        "run",
        "-c",
        "echo > up; while [ ! -e stop ]; do sleep 0.02; done",
        "demo",
    ]);
    eventually("the command", || stage.path("up").exists());
    let guardian = guardian_of(&run);
    stage.write("stop", "");
    assert_eq!((run.code(), run.stderr().as_str()), (0, ""));
    assert!(!alive(guardian));
}

/// In a class that lets work go on, a stopped leasehold is no reason to end the command; a dead one is.
#[test]
fn a_continue_class_is_ended_by_death_only() {
    let stage = Stage::sqlite();
    let script = format!("echo $$ > pid1; {}", BEAT.replace("$1", "beats"));
    let mut run = stage.start(&["run", "--class", "workflow", "--ttl", "2s", "-c", &script, "demo"]);
    let pid = stage.pid("pid1");
    run.signal(Signal::STOP);
    // Someone else is granted the lock: the lease is over.
    let second = stage.run(&["run", "-w", "50s", "demo", "true"]);
    assert_eq!(code(&second), 0, "{}", said(&second));
    assert!(alive(pid));
    run.signal(Signal::KILL);
    assert_eq!(run.code(), -9);
    eventually("the end of the command", || !alive(pid));
}

/// There is no moment at which the command runs and nobody would end it: its gate opens on a word, not on silence, and
/// not for an orphan.
#[test]
fn the_gate_stays_shut_without_its_parents_word() {
    let stage = Stage::sqlite();
    let me = std::process::id().to_string();
    let try_gate = |parent: &str, word: &str| {
        stage.write("word", word);
        let mut command = stage.command(&["__gate", "0", parent, "touch", "ran"]);
        command.stdin(std::fs::File::open(stage.path("word")).unwrap());
        (code(&command.output().unwrap()), stage.path("ran").exists())
    };
    assert_eq!(try_gate(&me, ""), (125, false));
    assert_eq!(try_gate(&me, "x"), (125, false));
    assert_eq!(try_gate("1", "g"), (125, false));
    assert_eq!(try_gate(&me, "g"), (0, true));
}

/// Has this process got the signal, and holds it back?
fn pending(pid: rustix::process::Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

/// The session of this process. Not by `getsid`, which knows no name for one whose leader is outside a container (0).
fn session_of(pid: rustix::process::Pid) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let (_, after_command) = stat.rsplit_once(')').unwrap();
    after_command.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// All three are suspended past the deadline, as a laptop's lid or a debugger does it: the command does not go on for a moment,
/// and what happened is said as it was.
#[test]
fn suspended_together_past_the_deadline_the_command_never_goes_on() {
    let stage = Stage::sqlite();
    let mut run = start_beating(&stage, "2s");
    let (pid, guardian) = (stage.pid("pid1"), guardian_of(&run));
    let leasehold = Frozen::new(run.pid());
    let guardian = Frozen::new(guardian);
    signal_group(pid, Signal::STOP);
    eventually("the lease to be over", || {
        code(&stage.run(&["show", "demo"])) == 1
    });
    let beats = stage.read("beats");
    drop(leasehold);
    eventually("the command to be killed", || !alive(pid));
    drop(guardian);
    assert_eq!(run.code(), 121, "{}", run.stderr());
    let said = run.stderr();
    assert!(
        said.contains("suspended past its deadline together with leasehold") && said.lines().count() <= 3,
        "{said}"
    );
    assert_eq!(stage.read("beats"), beats, "nothing was done after the deadline");
}
