//! Redis goes away: before the command, under it, and comes back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::stage::{
    BEAT, Frozen, Stage, alive, code, eventually, guardian_of, last_beat, printed, said, uptime,
};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

fn server() -> RedisServer {
    block_on(RedisServer::start()).expect("redis-server must be installed")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

#[test]
fn runs_lists_and_excludes() {
    let redis = server();
    let stage = Stage::at(redis.url());
    let mut first = stage.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo $LEASEHOLD_FENCE > fence; while [ ! -e stop ]; do sleep 0.02; done",
        "job:1",
    ]);
    let fence = stage.line("fence");
    let busy = stage.run(&["run", "-n", "job:1", "true"]);
    assert_eq!(code(&busy), 124, "{}", said(&busy));
    let listed = printed(&stage.run(&["list", "job:"]));
    assert!(listed.contains("first") && listed.contains(&fence), "{listed}");
    stage.write("stop", "");
    assert_eq!((first.code(), first.stderr().as_str()), (0, ""));
    assert_eq!(code(&stage.run(&["show", "job:1"])), 1);
}

/// The server is silent under a running command; the command is dead before its lease can have run out, TERM or not.
#[test]
fn trap_01_silence_ends_the_command_before_the_ttl() {
    let redis = server();
    let stage = Stage::at(redis.url());
    let script = format!("echo $$ > pid1; {}", BEAT.replace("$1", "beats"));
    let mut run = stage.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    let pid = stage.pid("pid1");
    eventually("beats", || stage.read("beats").lines().count() > 2);
    redis.pause();
    // Every lease the server has confirmed was confirmed by now.
    let over = uptime() + 3.0;
    assert_eq!(run.code(), 121, "{}", run.stderr());
    assert!(!alive(pid));
    let last = last_beat(&stage.read("beats"));
    assert!(last < over, "it beat at {last}, its lease was over at {over}");
    assert!(
        run.stderr().contains("lost the lease on demo"),
        "{}",
        run.stderr()
    );
    redis.resume();
}

/// The lease is lost under a running command; whoever is next starts after the command is dead.
#[test]
fn trap_34_the_command_is_dead_before_the_next_owner_starts() {
    let mut redis = server();
    let stage = Stage::at(redis.url());
    let script = format!("echo $$ > pid1; {}", BEAT.replace("$1", "beats"));
    let mut first = stage.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    let pid = stage.pid("pid1");
    eventually("beats", || stage.read("beats").lines().count() > 2);
    // The way to the server is cut for the first only: it is stopped as a whole except for its command and guardian.
    first.signal(Signal::STOP);
    let began = "read up rest < /proc/uptime; echo $up > began";
    let mut second = stage.start(&["run", "-w", "50s", "-c", began, "demo"]);
    assert_eq!(second.code(), 0, "{}", second.stderr());
    assert!(!alive(pid));
    let (last, began) = (
        last_beat(&stage.read("beats")),
        stage.line("began").parse::<f64>().unwrap(),
    );
    assert!(
        last < began,
        "the first beat at {last}, the second began at {began}"
    );
    first.signal(Signal::CONT);
    assert_eq!(first.code(), 121, "{}", first.stderr());
    redis.stop();
}

/// The store says that the lease is someone else's: killed at once, exit code 121.
#[test]
fn a_lease_that_is_not_ours_any_more_ends_the_command() {
    let mut redis = server();
    let stage = Stage::at(redis.url());
    let script = format!("echo $$ > pid1; {}", BEAT.replace("$1", "beats"));
    let mut run = stage.start(&["run", "--ttl", "4s", "-c", &script, "demo"]);
    let pid = stage.pid("pid1");
    // Leasehold has to do it itself: its guardian would only at the deadline.
    let _guardian = Frozen::new(guardian_of(&run));
    // Without persistence, a restarted server has forgotten everything.
    block_on(redis.restart()).unwrap();
    assert_eq!(run.code(), 121, "{}", run.stderr());
    assert!(run.stderr().contains("not ours any more"), "{}", run.stderr());
    assert!(!alive(pid));
}

#[test]
fn a_continue_class_goes_on_and_the_overlap_is_told() {
    let mut redis = server();
    let stage = Stage::at(redis.url());
    let script = "echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    let mut run = stage.start(&["run", "--class", "workflow", "--ttl", "2s", "-c", script, "demo"]);
    eventually("the command", || stage.path("up").exists());
    redis.stop();
    run.says("cannot be proven any more; class workflow lets the command go on");
    assert!(!run.ended());
    stage.write("stop", "");
    assert_eq!(run.code(), 6);
    assert!(
        run.stderr().contains("overlap: the command ran for "),
        "{}",
        run.stderr()
    );
}

#[test]
fn unreachable_at_the_start_a_fail_closed_class_does_not_run() {
    let mut redis = server();
    let stage = Stage::at(redis.url());
    redis.stop();
    let output = stage.run(&["run", "demo", "touch", "ran"]);
    let said = said(&output);
    assert_eq!(code(&output), 125, "{said}");
    assert!(
        said.contains("is unavailable") && said.contains("fail-closed"),
        "{said}"
    );
    assert!(
        said.lines().count() <= 3 && said.lines().all(|line| line.starts_with("leasehold: ")),
        "{said}"
    );
    assert!(!stage.path("ran").exists());
    // A server that is there but silent is no different.
    block_on(redis.restart()).unwrap();
    redis.pause();
    assert_eq!(code(&stage.run(&["run", "demo", "touch", "ran"])), 125);
    assert!(!stage.path("ran").exists());
    redis.resume();
}

#[test]
fn unreachable_at_the_start_a_fail_open_class_runs_and_heals() {
    let mut redis = server();
    let stage = Stage::at(redis.url());
    redis.stop();
    let script = "echo fence-${LEASEHOLD_FENCE-none} > env; while [ ! -e stop ]; do sleep 0.02; done; exit 6";
    // An outer run's fence must not pass for one of ours.
    let args = ["run", "--class", "workflow", "--ttl", "2s", "-c", script, "demo"];
    let mut run = stage.start_with(&args, |command| {
        command.env("LEASEHOLD_FENCE", "1");
    });
    assert_eq!(stage.line("env"), "fence-none");
    assert!(run.stderr().contains("LOCAL LOCK ONLY"), "{}", run.stderr());
    block_on(redis.restart()).unwrap();
    run.says("the store is back: demo is held with fence ");
    // Held like any other from now on.
    assert_eq!(
        code(&stage.run(&["run", "-n", "--class", "workflow", "demo", "true"])),
        124
    );
    stage.write("stop", "");
    assert_eq!(run.code(), 6);
    assert!(
        run.stderr().contains("overlap: the command ran for "),
        "{}",
        run.stderr()
    );
    assert_eq!(code(&stage.run(&["show", "demo"])), 1);
}

/// The command's result stays its own; that the release could not be confirmed is told.
#[test]
fn a_release_that_fails_does_not_hide_the_result() {
    let mut redis = server();
    let stage = Stage::at(redis.url());
    let mut run = stage.start(&[
        "run",
        "-c",
        "echo > up; while [ ! -e stop ]; do sleep 0.02; done; exit 6",
        "demo",
    ]);
    eventually("the command", || stage.path("up").exists());
    redis.stop();
    stage.write("stop", "");
    assert_eq!(run.code(), 6, "{}", run.stderr());
    assert!(
        run.stderr().contains("could not be confirmed"),
        "{}",
        run.stderr()
    );
}
