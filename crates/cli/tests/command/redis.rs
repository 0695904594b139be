//! Redis outages: before the command starts, while it runs, and recovery.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{
    BEAT_SCRIPT, Fixture, StoppedProcess, eventually, exit_code, guardian_of, is_running, last_beat,
    stderr_of, stdout_of, uptime,
};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

fn server() -> RedisServer {
    block_on(RedisServer::start()).expect("redis-server must be installed")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn runs_lists_and_excludes() {
    let redis = server();
    let fixture = Fixture::with_store(redis.url());
    let mut first = fixture.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo $LEASEHOLD_FENCE > fence; while [ ! -e stop ]; do sleep 0.02; done",
        "job:1",
    ]);
    let fence = fixture.wait_for_line("fence");
    let busy = fixture.run(&["run", "-n", "job:1", "true"]);
    assert_eq!(exit_code(&busy), 124, "{}", stderr_of(&busy));
    let listed = stdout_of(&fixture.run(&["list", "job:"]));
    assert!(listed.contains("first") && listed.contains(&fence), "{listed}");
    fixture.write("stop", "");
    assert_eq!((first.wait_exit_code(), first.stderr().as_str()), (0, ""));
    assert_eq!(exit_code(&fixture.run(&["show", "job:1"])), 1);
}

/// Messages hide a part of this URL, because its prefix looks like a password and a host. The store must be
/// opened by the whole URL all the same, also by a command inside `run`.
#[test]
fn a_url_that_messages_hide_opens_the_same_store_everywhere() {
    let redis = server();
    let fixture = Fixture::with_store(format!("{}?prefix=a@b:", redis.url()));
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("echo \"$LEASEHOLD_STORE\"; {exe} list -o name");
    let expected = format!("{}\njob:1\n", fixture.store());
    for verb in ["run", "elect"] {
        let ran = fixture.run(&[verb, "job:1", "sh", "-c", &script]);
        assert_eq!(exit_code(&ran), 0, "{verb}: {}", stderr_of(&ran));
        assert_eq!(stdout_of(&ran), expected, "{verb}");
    }
    let taken = fixture.run(&["acquire", "--token-file", "token", "job:2"]);
    assert_eq!(exit_code(&taken), 0, "{}", stderr_of(&taken));
    assert_eq!(stdout_of(&fixture.run(&["list", "-o", "name"])), "job:2\n");
    let released = fixture.run(&["release", "--token-file", "token"]);
    assert_eq!(exit_code(&released), 0, "{}", stderr_of(&released));
}

/// The server stops responding while a command runs. The command dies before its lease can expire, even if
/// it ignores TERM.
#[test]
fn trap_01_silence_ends_the_command_before_the_ttl() {
    let redis = server();
    let fixture = Fixture::with_store(redis.url());
    let script = format!("echo $$ > pid1; {}", BEAT_SCRIPT.replace("$1", "beats"));
    let mut run = fixture.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    let pid = fixture.pid("pid1");
    eventually("beats", || fixture.read("beats").lines().count() > 2);
    redis.pause();
    // The server has confirmed no lease after this time.
    let over = uptime() + 3.0;
    assert_eq!(run.wait_exit_code(), 121, "{}", run.stderr());
    assert!(!is_running(pid));
    let last = last_beat(&fixture.read("beats"));
    assert!(last < over, "it beat at {last}, its lease was over at {over}");
    assert!(run.stderr().contains("lost the lease on demo"), "{}", run.stderr());
    redis.resume();
}

/// The lease is lost while a command runs; the next owner starts after the command is dead.
#[test]
fn trap_34_the_command_is_dead_before_the_next_owner_starts() {
    let mut redis = server();
    let fixture = Fixture::with_store(redis.url());
    let script = format!("echo $$ > pid1; {}", BEAT_SCRIPT.replace("$1", "beats"));
    let mut first = fixture.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    let pid = fixture.pid("pid1");
    eventually("beats", || fixture.read("beats").lines().count() > 2);
    // Only the first leasehold loses the server: it is stopped, but not its command and guardian.
    first.signal(Signal::STOP);
    let began = "read up rest < /proc/uptime; echo $up > began";
    let mut second = fixture.start(&["run", "-w", "50s", "-c", began, "demo"]);
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    assert!(!is_running(pid));
    let (last, began) =
        (last_beat(&fixture.read("beats")), fixture.wait_for_line("began").parse::<f64>().unwrap());
    assert!(last < began, "the first beat at {last}, the second began at {began}");
    first.signal(Signal::CONT);
    assert_eq!(first.wait_exit_code(), 121, "{}", first.stderr());
    redis.stop();
}

/// The store no longer has the lease: the command is killed at once, exit code 121.
#[test]
fn a_lease_missing_in_the_store_ends_the_command() {
    let mut redis = server();
    let fixture = Fixture::with_store(redis.url());
    let script = format!("echo $$ > pid1; {}", BEAT_SCRIPT.replace("$1", "beats"));
    let mut run = fixture.start(&["run", "--ttl", "4s", "-c", &script, "demo"]);
    let pid = fixture.pid("pid1");
    // Leasehold itself must kill the command; the guardian, frozen here, would do so only at the deadline.
    let _guardian = StoppedProcess::new(guardian_of(&run));
    // Without persistence, a restarted server has lost all leases.
    block_on(redis.restart()).unwrap();
    assert_eq!(run.wait_exit_code(), 121, "{}", run.stderr());
    assert!(run.stderr().contains("not ours any more"), "{}", run.stderr());
    assert!(!is_running(pid));
}

#[test]
fn a_continue_class_goes_on_and_the_overlap_is_reported() {
    let mut redis = server();
    let fixture = Fixture::with_store(redis.url());
    let script = "echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    let mut run = fixture.start(&["run", "--class", "workflow", "--ttl", "2s", "-c", script, "demo"]);
    eventually("the command", || fixture.path("up").exists());
    redis.stop();
    run.wait_for_stderr("cannot be proven any more; class workflow lets the command go on");
    assert!(!run.has_ended());
    fixture.write("stop", "");
    assert_eq!(run.wait_exit_code(), 6);
    assert!(run.stderr().contains("overlap: the command ran for "), "{}", run.stderr());
}

#[test]
fn unreachable_at_the_start_a_fail_closed_class_does_not_run() {
    let mut redis = server();
    let fixture = Fixture::with_store(redis.url());
    redis.stop();
    let output = fixture.run(&["run", "demo", "touch", "ran"]);
    let message = stderr_of(&output);
    assert_eq!(exit_code(&output), 125, "{message}");
    assert!(message.contains("is unavailable") && message.contains("fail-closed"), "{message}");
    assert!(
        message.lines().count() <= 3 && message.lines().all(|line| line.starts_with("leasehold: ")),
        "{message}"
    );
    assert!(!fixture.path("ran").exists());
    // A server that accepts connections but does not respond is treated the same.
    block_on(redis.restart()).unwrap();
    redis.pause();
    assert_eq!(exit_code(&fixture.run(&["run", "demo", "touch", "ran"])), 125);
    assert!(!fixture.path("ran").exists());
    redis.resume();
}

#[test]
fn unreachable_at_the_start_a_fail_open_class_runs_and_heals() {
    let mut redis = server();
    let fixture = Fixture::with_store(redis.url());
    redis.stop();
    let script = "echo fence-${LEASEHOLD_FENCE-none} > env; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    // The fence of an outer run must not be passed on as this run's own.
    let args = ["run", "--class", "workflow", "--ttl", "2s", "-c", script, "demo"];
    let mut run = fixture.start_with(&args, |command| {
        command.env("LEASEHOLD_FENCE", "1");
    });
    assert_eq!(fixture.wait_for_line("env"), "fence-none");
    assert!(run.stderr().contains("LOCAL LOCK ONLY"), "{}", run.stderr());
    block_on(redis.restart()).unwrap();
    run.wait_for_stderr("the store is back: demo is held with fence ");
    // After healing it is held like any other lock.
    assert_eq!(exit_code(&fixture.run(&["run", "-n", "--class", "workflow", "demo", "true"])), 124);
    fixture.write("stop", "");
    assert_eq!(run.wait_exit_code(), 6);
    assert!(run.stderr().contains("overlap: the command ran for "), "{}", run.stderr());
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 1);
}

/// The exit code is the command's; the unconfirmed release is only reported.
#[test]
fn a_release_that_fails_does_not_hide_the_result() {
    let mut redis = server();
    let fixture = Fixture::with_store(redis.url());
    let mut run =
        fixture.start(&["run", "-c", "echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 6", "demo"]);
    eventually("the command", || fixture.path("up").exists());
    redis.stop();
    fixture.write("stop", "");
    assert_eq!(run.wait_exit_code(), 6, "{}", run.stderr());
    assert!(run.stderr().contains("could not be confirmed"), "{}", run.stderr());
}
