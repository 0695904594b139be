//! Errors of real servers, and how they are classified.

use leasehold_core::store::{AcquireResponse, ReleaseRequest, Store, StoreError, StoreErrorKind};
use leasehold_core::types::{Fence, Ttl};
use leasehold_redis::{RedisOptions, RedisStore};

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, eventually, expect_granted, name, open, raw_connection, release, renew,
    renew_request, run_command, server, server_with, token,
};

fn assert_definite(failure: &StoreError, cause: StoreErrorKind) {
    assert!(!failure.unknown && failure.kind == cause, "{failure}");
}

async fn acquire_error(store: &RedisStore) -> StoreError {
    store.acquire(&acquire_request("refused", &token()), CALL_TIMEOUT).await.unwrap_err()
}

#[tokio::test]
async fn r20_a_replica_is_refused_before_it_is_believed() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    renew(&store, renew_request("a", &mine, granted)).await;
    let _: () = run_command(&mut cli, "REPLICAOF 127.0.0.1 1").await;
    // R12: demoted under an open connection. The replica must not confirm a grant from stale data,
    // even if its remaining time is longer than requested and nothing would change.
    let mut shorter = acquire_request("a", &mine);
    shorter.ttl = Ttl::MIN;
    assert_definite(&store.acquire(&shorter, CALL_TIMEOUT).await.unwrap_err(), StoreErrorKind::ReadOnly);
    for over_the_old_connection in [true, false] {
        // The second call uses a new connection, because the first has shown
        // that the old one is useless.
        let mut shorter = renew_request("a", &mine, granted);
        shorter.ttl = Ttl::MIN;
        let mut answers = store.renew(&[shorter], CALL_TIMEOUT).await;
        let failure = answers.pop().unwrap().unwrap_err();
        assert_definite(&failure, StoreErrorKind::ReadOnly);
        assert_eq!(failure.message().contains("READONLY"), over_the_old_connection, "{failure}");
    }
    // Every later request, reads included, is refused on connect: a replica's `busy` may be stale.
    assert_definite(&store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap_err(), StoreErrorKind::ReadOnly);
    assert_definite(&acquire_error(&open(&server.url())).await, StoreErrorKind::ReadOnly);
    let _: () = run_command(&mut cli, "REPLICAOF NO ONE").await;
    expect_granted(&store, &acquire_request("b", &token())).await;
}

/// *Not owned* from a replica's stale data would fence a holder whose lease the primary still has,
/// and would clear a debt too early. The request goes over a connection opened before the demotion.
#[tokio::test]
async fn r20_a_replica_does_not_say_that_a_lease_is_not_owned() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let (mine, other) = (token(), token());
    let granted = expect_granted(&store, &acquire_request("theirs", &mine)).await;
    for text in ["theirs", "free"] {
        let seen = ReleaseRequest::by_operator(name(text), Fence::MIN);
        for request in [
            None,
            Some(ReleaseRequest::by_owner(name(text), other.clone())),
            Some(ReleaseRequest::undo(name(text), other.clone())),
            Some(ReleaseRequest::leave_queue(name(text), other.clone())),
            Some(seen),
        ] {
            // Opens the connection for renewals and releases, and loads its scripts.
            renew(&store, renew_request("theirs", &mine, granted)).await;
            release(&store, "warm", &other).await;
            let _: () = run_command(&mut cli, "REPLICAOF 127.0.0.1 1").await;
            let failure = match &request {
                Some(request) => store.release(request, CALL_TIMEOUT).await.unwrap_err(),
                None => {
                    let batch = [renew_request(text, &other, granted)];
                    store.renew(&batch, CALL_TIMEOUT).await.pop().unwrap().unwrap_err()
                }
            };
            assert_definite(&failure, StoreErrorKind::ReadOnly);
            assert!(failure.message().contains("READONLY"), "{request:?}: {failure}");
            let _: () = run_command(&mut cli, "REPLICAOF NO ONE").await;
        }
    }
}

#[tokio::test]
async fn r12_busy_with_a_script() {
    let server = server_with(&["--lua-time-limit", "1"]).await;
    let store = open(&server.url());
    expect_granted(&store, &acquire_request("a", &token())).await;
    let (mut spinner, mut killer) = (raw_connection(&server).await, raw_connection(&server).await);
    let spinning = tokio::spawn(async move {
        let spin: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query_async(&mut spinner).await;
        spin
    });
    eventually("the server is busy", || {
        let mut cli = killer.clone();
        async move { redis::cmd("PING").query_async::<String>(&mut cli).await.is_err() }
    })
    .await;
    let failure = acquire_error(&store).await;
    let _: () = run_command(&mut killer, "SCRIPT KILL").await;
    assert!(spinning.await.unwrap().is_err());
    assert_definite(&failure, StoreErrorKind::Overloaded);
    expect_granted(&store, &acquire_request("b", &token())).await;
}

#[tokio::test]
async fn r12_too_few_replicas_for_the_server() {
    let server = server_with(&["--min-replicas-to-write", "1"]).await;
    assert_definite(&acquire_error(&open(&server.url())).await, StoreErrorKind::Overloaded);
}

#[tokio::test]
async fn r12_a_disk_that_cannot_be_written() {
    let server = server_with(&["--save", "3600 1", "--rdbcompression", "no"]).await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    expect_granted(&store, &acquire_request("a", &token())).await;
    // A directory has the snapshot's file name, so no snapshot can be written.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    let _: redis::RedisResult<()> = redis::cmd("BGSAVE").query_async(&mut cli).await;
    eventually("the snapshot failed", || {
        let mut cli = cli.clone();
        async move {
            run_command::<String>(&mut cli, "INFO persistence").await.contains("rdb_last_bgsave_status:err")
        }
    })
    .await;
    assert_definite(&acquire_error(&store).await, StoreErrorKind::Overloaded);
}

#[tokio::test]
async fn r12_no_connection_left() {
    let server = server().await;
    let mut cli = raw_connection(&server).await;
    let _: () = run_command(&mut cli, "CONFIG SET maxclients 1").await;
    assert_definite(&acquire_error(&open(&server.url())).await, StoreErrorKind::Overloaded);
}

#[tokio::test]
async fn r12_passwords() {
    use std::os::unix::fs::PermissionsExt;
    let server = server_with(&["--requirepass", "right"]).await;
    assert_definite(&acquire_error(&open(&server.url())).await, StoreErrorKind::Denied);
    let file = server.dir().join("password");
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write("hunter2");
    let store = open(&format!("{}?password_file={}", server.url(), file.display()));
    let failure = acquire_error(&store).await;
    assert_definite(&failure, StoreErrorKind::Denied);
    assert!(!failure.to_string().contains("hunter2") && !format!("{store:?}").contains("hunter2"));
    // A rotated password is read with the next connection.
    write("right\n");
    expect_granted(&store, &acquire_request("a", &token())).await;
    std::fs::remove_file(&file).unwrap();
    let options = RedisOptions::parse(&format!("{}?password_file={}", server.url(), file.display())).unwrap();
    assert_definite(&RedisStore::open(options).unwrap_err(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn r12_a_cluster_node_that_serves_no_slot() {
    let server = server_with(&["--cluster-enabled", "yes"]).await;
    assert_definite(&acquire_error(&open(&server.url())).await, StoreErrorKind::Overloaded);
}

#[tokio::test]
async fn a_server_that_is_something_else_is_unreachable_or_unsupported_but_never_unknown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    assert!(!acquire_error(&open(&url)).await.unknown);
}

#[tokio::test]
async fn modes_that_are_not_served_are_refused() {
    let server = server().await;
    let store = open(&server.url());
    let mut shared = acquire_request("a", &token());
    shared.mode = leasehold_core::store::Mode::Shared;
    assert_definite(&store.acquire(&shared, CALL_TIMEOUT).await.unwrap_err(), StoreErrorKind::Unsupported);
    assert!(!store.capabilities().shared && !store.capabilities().permits);
    assert!(matches!(
        store.acquire(&acquire_request("a", &token()), CALL_TIMEOUT).await.unwrap(),
        AcquireResponse::Granted(_)
    ));
}
