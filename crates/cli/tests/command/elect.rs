//! `elect`: one leader, another when it is gone, the same one again after a loss.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::stage::{Stage, code, eventually, said};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

const LEAD: &str = "echo $LEASEHOLD_HOLDER $LEASEHOLD_FENCE >> terms; while :; do sleep 0.02; done";

fn terms(stage: &Stage) -> Vec<(String, u64)> {
    let parse = |line: &str| {
        let (holder, fence) = line.split_once(' ').unwrap();
        (holder.to_owned(), fence.parse().unwrap())
    };
    stage.read("terms").lines().map(parse).collect()
}

#[test]
fn one_leads_and_the_next_takes_over() {
    let stage = Stage::sqlite();
    let candidate = |holder: &str| stage.start(&["--holder", holder, "elect", "leader", "sh", "-c", LEAD]);
    let mut first = candidate("a");
    eventually("a leader", || terms(&stage).len() == 1);
    let mut second = candidate("b");
    first.says("elected: a leads leader, fence ");
    assert_eq!(code(&stage.run(&["show", "leader"])), 0);
    assert_eq!(terms(&stage).len(), 1, "b waits");
    // The command ends by a signal: its code is passed on, and the next one leads.
    first.signal(Signal::TERM);
    assert_eq!(first.code(), 128 + 15, "{}", first.stderr());
    eventually("the next leader", || terms(&stage).len() == 2);
    let terms = terms(&stage);
    assert_eq!((terms[0].0.as_str(), terms[1].0.as_str()), ("a", "b"));
    assert!(terms[1].1 > terms[0].1, "{terms:?}");
    second.signal(Signal::INT);
    second.signal(Signal::TERM);
    assert!(second.code() > 128);
}

#[test]
fn a_leader_that_is_broken_stands_again() {
    let stage = Stage::sqlite();
    let mut leader = stage.start(&["elect", "--ttl", "2s", "leader", "sh", "-c", LEAD]);
    eventually("a leader", || terms(&stage).len() == 1);
    let broken = stage.run(&["break", "leader", "--reason", "test", "--force", "--wait", "0s"]);
    assert_eq!(code(&broken), 0, "{}", said(&broken));
    eventually("the second term", || terms(&stage).len() == 2);
    let terms = terms(&stage);
    assert!(terms[1].1 > terms[0].1, "{terms:?}");
    leader.says("was killed at once");
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), 128 + 15);
}

#[test]
fn or_ends_with_121() {
    let stage = Stage::sqlite();
    let mut leader = stage.start(&[
        "elect",
        "--ttl",
        "2s",
        "--on-lost",
        "exit",
        "leader",
        "sh",
        "-c",
        LEAD,
    ]);
    eventually("a leader", || terms(&stage).len() == 1);
    assert_eq!(
        code(&stage.run(&["break", "leader", "--reason", "test", "--force", "--wait", "0s"])),
        0
    );
    assert_eq!(leader.code(), 121, "{}", leader.stderr());
}

/// The store is away for a while: nobody leads, and the election goes on when it is back.
#[test]
fn an_outage_is_waited_out() {
    let mut redis = block_on(RedisServer::start()).expect("redis-server must be installed");
    let stage = Stage::at(redis.url());
    redis.stop();
    let mut candidate = stage.start(&["elect", "--ttl", "2s", "leader", "sh", "-c", LEAD]);
    candidate.says("standing for election goes on");
    assert!(terms(&stage).is_empty());
    block_on(redis.restart()).unwrap();
    eventually("a leader", || terms(&stage).len() == 1);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.code(), 128 + 15);
}

#[test]
fn refuses_classes_that_let_two_lead_and_bad_usage() {
    let stage = Stage::sqlite();
    let refused = stage.run(&["elect", "--class", "workflow", "leader", "true"]);
    assert_eq!(code(&refused), 125, "{}", said(&refused));
    assert!(said(&refused).contains("workflow-critical"), "{}", said(&refused));
    assert_eq!(code(&stage.run(&["elect", "leader"])), 125);
    assert_eq!(code(&stage.run(&["elect", "--frob", "leader", "true"])), 125);
    assert_eq!(code(&stage.run(&["elect", "leader", "sh", "-c", "exit 7"])), 7);
    assert_eq!(code(&stage.run(&["elect", "leader", "/no/such/command"])), 127);
}
