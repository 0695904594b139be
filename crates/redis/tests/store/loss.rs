//! Servers that forget: persistence, replication, eviction, clocks.

use std::time::Duration;

use leasehold_core::store::{Cause, Given, Giving, Promise, Renewed, Store};
use leasehold_redis::testkit::RedisServer;

use crate::stage::{
    WITHIN, ask, eventually, give, grant, name, open, raw, renew, renewal, run, server, server_with, token,
};

/// A replica of `primary` that has caught up.
async fn replica_of(primary: &RedisServer) -> RedisServer {
    let port = primary.port().to_string();
    let replica = server_with(&[
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ])
    .await;
    let cli = raw(&replica).await;
    eventually("the replica follows", || {
        let mut cli = cli.clone();
        async move {
            run::<String>(&mut cli, "INFO replication")
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
    let granted = grant(&store, &ask("a", &mine)).await;
    let value: String = run(&mut raw(&replica).await, "GET lock:a").await;
    assert_eq!(value, format!("{}|{}", mine.expose(), granted.fence));
}

#[tokio::test]
async fn r07_too_few_replicas_give_the_grant_back() {
    let server = server().await;
    let (store, mut cli) = (
        open(&format!("{}?wait_replicas=1", server.url())),
        raw(&server).await,
    );
    let failure = store
        .acquire(&ask("a", &token()), Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(
        !failure.unknown && failure.cause == Cause::Overloaded,
        "{failure}"
    );
    assert!(failure.message().contains("0 of 1 replicas"), "{failure}");
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:a").await, None);
    let findings = store.promise(WITHIN).await.unwrap().because.join(" ");
    assert!(findings.contains("no lease can be granted"), "{findings}");
}

#[tokio::test]
async fn trap_24_a_fail_over_that_lost_the_lease_still_grows_the_fence() {
    let primary = server_with(&["--repl-diskless-sync-delay", "0"]).await;
    let replica = replica_of(&primary).await;
    let store = open(&primary.url());
    let promised = store.promise(WITHIN).await.unwrap();
    assert_eq!(promised.promise, Promise::Volatile);
    assert!(promised.because.join(" ").contains("fail-over"));
    let mine = token();
    let before = grant(&store, &ask("a", &mine)).await.fence;
    give(&store, "a", &mine).await;

    // The link is cut; what is granted now is acknowledged and never replicated.
    let mut other = raw(&replica).await;
    let _: () = run(&mut other, "REPLICAOF NO ONE").await;
    let mut lost = before;
    for _ in 0..5 {
        let mine = token();
        lost = grant(&store, &ask("a", &mine)).await.fence;
        give(&store, "a", &mine).await;
    }
    grant(&store, &ask("a", &token())).await;

    // The promoted replica has forgotten the holder, and its counter lags; the fence does not.
    let promoted = open(&replica.url());
    assert_eq!(run::<Option<String>>(&mut other, "GET lock:a").await, None);
    assert!(grant(&promoted, &ask("a", &token())).await.fence > lost);
}

#[tokio::test]
async fn r09_with_an_append_only_file_leases_survive_kill_9() {
    // Not `everysec`: on a slow disk the server may put writes off, and a crash takes them with it.
    let mut server = server_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(&server.url());
    assert_eq!(store.promise(WITHIN).await.unwrap().promise, Promise::Durable);
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    server.restart().await.unwrap();
    let after = open(&server.url());
    let lease = after.inspect(&name("a"), WITHIN).await.unwrap().expect("kept");
    assert_eq!(
        (lease.holder.as_str(), lease.fence),
        ("web-1:7", Some(granted.fence))
    );
    assert!(matches!(
        renew(&after, renewal("a", &mine, granted)).await,
        Renewed::Extended { .. }
    ));
}

#[tokio::test]
async fn r09_the_promise_is_that_of_the_server_which_is_there_now() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let promised = store.promise(WITHIN).await.unwrap();
    assert_eq!(promised.promise, Promise::Volatile);
    assert!(promised.because[0].contains("appendonly yes"));
    let _: () = run(&mut cli, "CONFIG SET appendonly yes").await;
    assert_eq!(store.promise(WITHIN).await.unwrap().promise, Promise::Durable);
}

#[tokio::test]
async fn r10_a_clock_that_jumped_shows_in_the_next_renewal() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    // What a jump of 25 s ahead does to a lease of 30 s.
    let _: i64 = run(&mut cli, "PEXPIRE lock:a 5000").await;
    match renew(&store, renewal("a", &mine, granted)).await {
        Renewed::Extended { was_left: Some(left) } => assert!(left <= Duration::from_secs(5), "{left:?}"),
        other => panic!("{other:?}"),
    }
    match renew(&store, renewal("a", &mine, granted)).await {
        Renewed::Extended { was_left: Some(left) } => assert!(left > Duration::from_secs(5), "{left:?}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r11_every_policy_that_evicts_is_volatile() {
    let server = server_with(&["--appendonly", "yes"]).await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    for policy in [
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
    ] {
        let _: () = run(&mut cli, &format!("CONFIG SET maxmemory-policy {policy}")).await;
        let promised = store.promise(WITHIN).await.unwrap();
        assert_eq!(promised.promise, Promise::Volatile, "{policy}");
        assert!(promised.because.join(" ").contains(policy), "{policy}");
    }
    let _: () = run(&mut cli, "CONFIG SET maxmemory-policy noeviction").await;
    assert_eq!(store.promise(WITHIN).await.unwrap().promise, Promise::Durable);
}

#[tokio::test]
async fn r11_out_of_memory_refuses_new_locks_but_keeps_and_frees_old_ones() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let (mine, other) = (token(), token());
    let granted = grant(&store, &ask("a", &mine)).await;
    grant(&store, &ask("b", &other)).await;
    let _: () = run(&mut cli, "CONFIG SET maxmemory 1").await;
    let failure = store.acquire(&ask("c", &token()), WITHIN).await.unwrap_err();
    assert!(
        !failure.unknown && failure.cause == Cause::Overloaded,
        "{failure}"
    );
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:c").await, None);
    assert!(matches!(
        renew(&store, renewal("a", &mine, granted)).await,
        Renewed::Extended { .. }
    ));
    assert_eq!(give(&store, "a", &mine).await, Given::Released);
    // An undo frees the lease too, though its tombstone takes memory.
    let undo = Giving::undo(name("b"), other);
    assert_eq!(store.release(&undo, WITHIN).await.unwrap(), Given::Released);
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:b").await, None);
}
