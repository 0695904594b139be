//! Servers that lose data: persistence, replication, eviction, clocks.

use std::time::Duration;

use leasehold_core::store::{Promise, ReleaseRequest, ReleaseResponse, RenewResponse, Store, StoreErrorKind};
use leasehold_redis::testkit::RedisServer;

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, eventually, expect_granted, name, open, raw_connection, release, renew,
    renew_request, run_command, server, server_with, token,
};

/// A replica of `primary` that has caught up.
async fn replica_of(primary: &RedisServer) -> RedisServer {
    let port = primary.port().to_string();
    let replica = server_with(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]).await;
    let cli = raw_connection(&replica).await;
    eventually("the replica follows", || {
        let mut cli = cli.clone();
        async move {
            run_command::<String>(&mut cli, "INFO replication")
                .await
                .contains("master_link_status:up")
        }
    })
    .await;
    replica
}

#[tokio::test]
async fn r07_with_wait_replicas_a_grant_is_on_the_replica() {
    let primary = server_with(&["--repl-diskless-sync-delay", "0"]).await;
    let replica = replica_of(&primary).await;
    let store = open(&format!("{}?wait_replicas=1", primary.url()));
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    let value: String = run_command(&mut raw_connection(&replica).await, "GET lock:a").await;
    assert_eq!(value, format!("{}|{}", mine.expose(), granted.fence));
}

#[tokio::test]
async fn r07_too_few_replicas_give_the_grant_back() {
    let server = server().await;
    let (store, mut cli) =
        (open(&format!("{}?wait_replicas=1", server.url())), raw_connection(&server).await);
    let failure = store.acquire(&acquire_request("a", &token()), Duration::from_secs(1)).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Overloaded, "{failure}");
    assert!(failure.message().contains("0 of 1 replicas"), "{failure}");
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:a").await, None);
    let findings = store.promise(CALL_TIMEOUT).await.unwrap().limits.join(" ");
    assert!(findings.contains("no lease can be granted"), "{findings}");
}

#[tokio::test]
async fn trap_24_a_fail_over_that_lost_the_lease_still_grows_the_fence() {
    let primary = server_with(&["--repl-diskless-sync-delay", "0"]).await;
    let replica = replica_of(&primary).await;
    let store = open(&primary.url());
    let promised = store.promise(CALL_TIMEOUT).await.unwrap();
    assert_eq!(promised.promise, Promise::Volatile);
    assert!(promised.limits.join(" ").contains("fail-over"));
    let mine = token();
    let before = expect_granted(&store, &acquire_request("a", &mine)).await.fence;
    release(&store, "a", &mine).await;

    // The link is cut: what is granted now is acknowledged but never replicated.
    let mut other = raw_connection(&replica).await;
    let _: () = run_command(&mut other, "REPLICAOF NO ONE").await;
    let mut lost = before;
    for _ in 0..5 {
        let mine = token();
        lost = expect_granted(&store, &acquire_request("a", &mine)).await.fence;
        release(&store, "a", &mine).await;
    }
    expect_granted(&store, &acquire_request("a", &token())).await;

    // The promoted replica has lost the holder, and its counter lags. The fence must not.
    let promoted = open(&replica.url());
    assert_eq!(run_command::<Option<String>>(&mut other, "GET lock:a").await, None);
    assert!(expect_granted(&promoted, &acquire_request("a", &token())).await.fence > lost);
}

#[tokio::test]
async fn r09_with_an_append_only_file_leases_survive_kill_9() {
    // Not `everysec`: on a slow disk the server may delay writes, and a crash loses them.
    let mut server = server_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(&server.url());
    assert_eq!(store.promise(CALL_TIMEOUT).await.unwrap().promise, Promise::Durable);
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    server.restart().await.unwrap();
    let after = open(&server.url());
    let lease = after.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().expect("kept");
    assert_eq!((lease.holder.as_str(), lease.fence), ("web-1:7", Some(granted.fence)));
    assert!(matches!(
        renew(&after, renew_request("a", &mine, granted)).await,
        RenewResponse::Extended { .. }
    ));
}

#[tokio::test]
async fn r09_the_promise_is_that_of_the_server_which_is_there_now() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let promised = store.promise(CALL_TIMEOUT).await.unwrap();
    assert_eq!(promised.promise, Promise::Volatile);
    assert!(promised.limits[0].contains("appendonly yes"));
    let _: () = run_command(&mut cli, "CONFIG SET appendonly yes").await;
    assert_eq!(store.promise(CALL_TIMEOUT).await.unwrap().promise, Promise::Durable);
}

#[tokio::test]
async fn r10_a_clock_that_jumped_shows_in_the_next_renewal() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    // The effect of a clock jump of 25 s on a lease of 30 s.
    let _: i64 = run_command(&mut cli, "PEXPIRE lock:a 5000").await;
    match renew(&store, renew_request("a", &mine, granted)).await {
        RenewResponse::Extended { remaining_before: Some(left), .. } => {
            assert!(left <= Duration::from_secs(5), "{left:?}")
        }
        other => panic!("{other:?}"),
    }
    match renew(&store, renew_request("a", &mine, granted)).await {
        RenewResponse::Extended { remaining_before: Some(left), .. } => {
            assert!(left > Duration::from_secs(5), "{left:?}")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r11_every_policy_that_evicts_is_volatile() {
    let server = server_with(&["--appendonly", "yes"]).await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    for policy in [
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
    ] {
        let _: () = run_command(&mut cli, &format!("CONFIG SET maxmemory-policy {policy}")).await;
        let promised = store.promise(CALL_TIMEOUT).await.unwrap();
        assert_eq!(promised.promise, Promise::Volatile, "{policy}");
        assert!(promised.limits.join(" ").contains(policy), "{policy}");
    }
    let _: () = run_command(&mut cli, "CONFIG SET maxmemory-policy noeviction").await;
    assert_eq!(store.promise(CALL_TIMEOUT).await.unwrap().promise, Promise::Durable);
}

#[tokio::test]
async fn r11_out_of_memory_refuses_new_locks_but_keeps_and_frees_old_ones() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let (mine, other) = (token(), token());
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    expect_granted(&store, &acquire_request("b", &other)).await;
    let _: () = run_command(&mut cli, "CONFIG SET maxmemory 1").await;
    let failure = store.acquire(&acquire_request("c", &token()), CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Overloaded, "{failure}");
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:c").await, None);
    assert!(matches!(
        renew(&store, renew_request("a", &mine, granted)).await,
        RenewResponse::Extended { .. }
    ));
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    // An undo frees the lease too, although its tombstone takes memory.
    let undo = ReleaseRequest::undo(name("b"), other);
    assert_eq!(store.release(&undo, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::Released);
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:b").await, None);
}
