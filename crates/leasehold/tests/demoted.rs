//! A Redis server that became a replica under its clients: that is an outage with a policy, and nobody's lock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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

#[tokio::test]
async fn r20_a_demoted_server_is_an_outage_and_not_contention() {
    let server = RedisServer::start().await.unwrap();
    let locks = leasehold::open(server.url()).build().await.unwrap();
    // Under a connection that is in use: a new one is refused before anything is asked over it.
    let before = locks.class("scheduler").acquire("job:1").await.unwrap().held();
    before.unwrap().release().await;
    cli(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    // Nobody holds anything. `busy` would have the work wait for a holder that is not there.
    match locks.class("scheduler").acquire("job:1").await {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    let local = locks.class("workflow").acquire("run:1").await.unwrap().held();
    assert!(
        local.unwrap().fence().is_err(),
        "held by this process alone, without a fence"
    );
    cli(&server, &["REPLICAOF", "NO", "ONE"]);
    // Found by the next question that is let through.
    let hold = loop {
        if let Ok(acquired) = locks.class("scheduler").acquire("job:1").await {
            break acquired.held().unwrap();
        }
        #[allow(clippy::disallowed_methods, reason = "a real server is waited for")]
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    hold.release().await;
}
