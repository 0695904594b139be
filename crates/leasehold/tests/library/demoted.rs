//! A Redis server that became a replica while clients were connected is an outage, and not
//! contention.

use std::time::Duration;

use leasehold::prelude::*;
use leasehold_redis::testkit::RedisServer;

fn redis_cli(server: &RedisServer, words: &[&str]) {
    let port = server.port().to_string();
    let told = std::process::Command::new("redis-cli").args(["-p", &port]).args(words).output().unwrap();
    assert!(told.status.success(), "{told:?}");
}

/// A client whose server becomes a replica while the client is connected.
async fn demoted_server(class: &str) -> (RedisServer, Locks) {
    let server = RedisServer::start().await.unwrap();
    let locks = leasehold::open(server.url()).build().await.unwrap();
    let before = locks.class(class).acquire("job:1").await.unwrap().held();
    before.unwrap().release().await;
    redis_cli(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    (server, locks)
}

// Only the first request after the demotion is answered with READONLY. That answer closes the
// connection, and a new connection is refused before its first request. A waiter retries and gets
// the right error in any case, even if the first answer was misread. So these tests do not wait:
// one request must be enough.

/// No client holds the name: *busy* would make the caller leave the work to a holder that does not
/// exist.
#[tokio::test]
async fn r20_one_request_to_a_demoted_server_is_unavailable_not_busy() {
    let (_server, locks) = demoted_server("scheduler").await;
    match locks.class("scheduler").wait(Duration::ZERO).acquire("job:1").await {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r20_a_fail_open_class_continues_alone_on_a_demoted_server() {
    let (_server, locks) = demoted_server("workflow").await;
    let local = locks.class("workflow").wait(Duration::ZERO).acquire("job:1").await;
    match local.unwrap() {
        Acquired::Held(hold) => assert!(
            matches!(hold.fence(), Err(FenceError::LocalOnly { .. })),
            "held by this process alone, without a fence"
        ),
        Acquired::Busy(busy) => panic!("{busy:?}"),
    }
}

#[tokio::test]
async fn r20_waiters_see_a_demoted_server_as_an_outage_until_promoted() {
    let (server, locks) = demoted_server("scheduler").await;
    match locks.class("scheduler").acquire("job:1").await {
        Err(Error::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    redis_cli(&server, &["REPLICAOF", "NO", "ONE"]);
    // The breaker lets a request through from time to time; the next one succeeds.
    let hold = loop {
        if let Ok(acquired) = locks.class("scheduler").acquire("job:1").await {
            break acquired.held().unwrap();
        }
        #[allow(clippy::disallowed_methods, reason = "a real server is waited for")]
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    hold.release().await;
}
