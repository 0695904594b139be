//! A Redis server that became a replica under its clients: that is an outage with a policy, and nobody's lock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold::prelude::*;
use leasehold_redis::testkit::RedisServer;

fn cli(server: &RedisServer, words: &[&str]) {
    let port = server.port().to_string();
    let told = std::process::Command::new("redis-cli")
        .args(["-p", &port])
        .args(words)
        .output()
        .unwrap();
    assert!(told.status.success(), "{told:?}");
}

/// A client whose server becomes a replica under the connection that it has just used.
async fn demoted(class: &str) -> (RedisServer, Locks) {
    let server = RedisServer::start().await.unwrap();
    let locks = leasehold::open(server.url()).build().await.unwrap();
    let before = locks.class(class).acquire("job:1").await.unwrap().held();
    before.unwrap().release().await;
    cli(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    (server, locks)
}

// Only the first question after that is answered with READONLY: its answer ends the connection, and a new one is refused
// before anything is asked over it. Whoever waits for a busy name asks again and so learns the truth in any case, whatever
// the first answer was taken for. Here one question has to do.

/// Nobody holds anything: *busy* would have the work leave it to a holder that is not there.
#[tokio::test]
async fn r20_one_question_to_a_demoted_server_is_unavailable_and_not_busy() {
    let (_server, locks) = demoted("scheduler").await;
    match locks
        .class("scheduler")
        .wait(Duration::ZERO)
        .acquire("job:1")
        .await
    {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r20_one_question_to_a_demoted_server_lets_a_fail_open_class_go_on_alone() {
    let (_server, locks) = demoted("workflow").await;
    let local = locks
        .class("workflow")
        .wait(Duration::ZERO)
        .acquire("job:1")
        .await;
    match local.unwrap() {
        Acquired::Held(hold) => assert!(
            matches!(hold.fence(), Err(NoFence::LocalOnly { .. })),
            "held by this process alone, without a fence"
        ),
        Acquired::Busy(busy) => panic!("{busy:?}"),
    }
}

#[tokio::test]
async fn r20_a_demoted_server_is_an_outage_to_those_who_wait_and_is_found_again_when_it_is_over() {
    let (server, locks) = demoted("scheduler").await;
    match locks.class("scheduler").acquire("job:1").await {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    cli(&server, &["REPLICAOF", "NO", "ONE"]);
    // Found by the next question that is let through.
    let hold = loop {
        if let Ok(acquired) = locks.class("scheduler").acquire("job:1").await {
            break acquired.held().unwrap();
        }
        #[allow(clippy::disallowed_methods, reason = "a real server is waited for")]
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    hold.release().await;
}
