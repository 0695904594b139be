//! `elect`: one leader at a time, a new one after its end, and re-election after a loss.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{Fixture, eventually, exit_code, stderr_of};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

const LEADER_SCRIPT: &str = "echo $LEASEHOLD_HOLDER $LEASEHOLD_FENCE >> terms; while :; do sleep 0.02; done";

fn terms(fixture: &Fixture) -> Vec<(String, u64)> {
    let parse = |line: &str| {
        let (holder, fence) = line.split_once(' ').unwrap();
        (holder.to_owned(), fence.parse().unwrap())
    };
    fixture.read("terms").lines().map(parse).collect()
}

#[test]
fn one_leads_and_the_next_takes_over() {
    let fixture = Fixture::sqlite();
    let candidate =
        |holder: &str| fixture.start(&["--holder", holder, "elect", "leader", "sh", "-c", LEADER_SCRIPT]);
    let mut first = candidate("a");
    eventually("a leader", || terms(&fixture).len() == 1);
    let mut second = candidate("b");
    first.wait_for_stderr("elected: a leads leader, fence ");
    assert_eq!(exit_code(&fixture.run(&["show", "leader"])), 0);
    assert_eq!(terms(&fixture).len(), 1, "b waits");
    // The command ends by a signal: its exit code is passed on, and the next candidate leads.
    first.signal(Signal::TERM);
    assert_eq!(first.wait_exit_code(), 128 + 15, "{}", first.stderr());
    eventually("the next leader", || terms(&fixture).len() == 2);
    let terms = terms(&fixture);
    assert_eq!((terms[0].0.as_str(), terms[1].0.as_str()), ("a", "b"));
    assert!(terms[1].1 > terms[0].1, "{terms:?}");
    second.signal(Signal::INT);
    second.signal(Signal::TERM);
    assert!(second.wait_exit_code() > 128);
}

#[test]
fn a_leader_whose_lease_is_broken_is_a_candidate_again() {
    let fixture = Fixture::sqlite();
    let mut leader = fixture.start(&["elect", "--ttl", "2s", "leader", "sh", "-c", LEADER_SCRIPT]);
    eventually("a leader", || terms(&fixture).len() == 1);
    let broken = fixture.run(&["break", "leader", "--reason", "test", "--force", "--wait", "0s"]);
    assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
    eventually("the second term", || terms(&fixture).len() == 2);
    let terms = terms(&fixture);
    assert!(terms[1].1 > terms[0].1, "{terms:?}");
    leader.wait_for_stderr("was killed at once");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait_exit_code(), 128 + 15);
}

#[test]
fn or_ends_with_121() {
    let fixture = Fixture::sqlite();
    let mut leader =
        fixture.start(&["elect", "--ttl", "2s", "--on-lost", "exit", "leader", "sh", "-c", LEADER_SCRIPT]);
    eventually("a leader", || terms(&fixture).len() == 1);
    assert_eq!(
        exit_code(&fixture.run(&["break", "leader", "--reason", "test", "--force", "--wait", "0s"])),
        0
    );
    assert_eq!(leader.wait_exit_code(), 121, "{}", leader.stderr());
}

/// While the store is unavailable there is no leader; the election continues when it is back.
#[test]
fn an_outage_is_waited_out() {
    let mut redis = block_on(RedisServer::start()).expect("redis-server must be installed");
    let fixture = Fixture::with_store(redis.url());
    redis.stop();
    let mut candidate = fixture.start(&["elect", "--ttl", "2s", "leader", "sh", "-c", LEADER_SCRIPT]);
    candidate.wait_for_stderr("standing for election goes on");
    assert!(terms(&fixture).is_empty());
    block_on(redis.restart()).unwrap();
    eventually("a leader", || terms(&fixture).len() == 1);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.wait_exit_code(), 128 + 15);
}

#[test]
fn refuses_classes_that_let_two_lead_and_bad_usage() {
    let fixture = Fixture::sqlite();
    let refused = fixture.run(&["elect", "--class", "workflow", "leader", "true"]);
    assert_eq!(exit_code(&refused), 125, "{}", stderr_of(&refused));
    assert!(stderr_of(&refused).contains("workflow-critical"), "{}", stderr_of(&refused));
    assert_eq!(exit_code(&fixture.run(&["elect", "leader"])), 125);
    assert_eq!(exit_code(&fixture.run(&["elect", "--frob", "leader", "true"])), 125);
    assert_eq!(exit_code(&fixture.run(&["elect", "leader", "sh", "-c", "exit 7"])), 7);
    assert_eq!(exit_code(&fixture.run(&["elect", "leader", "/no/such/command"])), 127);
}
