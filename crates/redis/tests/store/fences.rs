//! Fences only grow, whatever data the server loses.

use std::time::Duration;

use leasehold_core::store::{ReleaseRequest, ReleaseResponse, RenewResponse, Store, StoreErrorKind};
use leasehold_core::types::Fence;

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, eventually, expect_granted, name, open, raw_connection, release, renew,
    renew_request, run_command, server, server_with, token, ttl,
};

#[tokio::test]
async fn trap_11_the_fence_grows_across_release_expiry_break_flush_and_restart() {
    let mut server = server().await;
    let store = open(&server.url());
    let mut last = Fence::MIN;
    let mut grows = |step: &str, fence: Fence| {
        assert!(fence > last, "{step}: {fence} after {last}");
        last = fence;
    };
    let mine = token();
    grows("first", expect_granted(&store, &acquire_request("a", &mine)).await.fence);
    release(&store, "a", &mine).await;

    let mut brief = acquire_request("a", &token());
    brief.ttl = ttl(Duration::from_millis(100));
    let expiring = expect_granted(&store, &brief).await.fence;
    grows("release", expiring);
    eventually("it expired", || async {
        store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().leases.is_empty()
    })
    .await;

    let broken = expect_granted(&store, &acquire_request("a", &token())).await.fence;
    grows("expiry", broken);
    let breaking = ReleaseRequest::by_operator(name("a"), broken);
    assert_eq!(store.release(&breaking, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::Released);
    grows("break", expect_granted(&store, &acquire_request("a", &token())).await.fence);

    // R8: all data lost while the connection stays open.
    let _: () = run_command(&mut raw_connection(&server).await, "FLUSHALL").await;
    grows("flush", expect_granted(&store, &acquire_request("a", &token())).await.fence);

    // R8: all data lost with the server.
    server.restart().await.unwrap();
    eventually("the death is noticed", || async { !format!("{store:?}").contains("connected: true") }).await;
    grows("restart without persistence", expect_granted(&store, &acquire_request("a", &token())).await.fence);
}

#[tokio::test]
async fn trap_12_a_stale_handle_cannot_touch_the_newer_lock() {
    let server = server().await;
    let store = open(&server.url());
    let old = token();
    let granted = expect_granted(&store, &acquire_request("a", &old)).await;
    assert_eq!(release(&store, "a", &old).await, ReleaseResponse::Released);
    let new = token();
    let newer = expect_granted(&store, &acquire_request("a", &new)).await;
    assert_eq!(release(&store, "a", &old).await, ReleaseResponse::NotOwned);
    assert_eq!(renew(&store, renew_request("a", &old, granted)).await, RenewResponse::NotOwned);
    // The newer token with the older fence is another grant, too.
    assert_eq!(renew(&store, renew_request("a", &new, granted)).await, RenewResponse::NotOwned);
    assert!(matches!(renew(&store, renew_request("a", &new, newer)).await, RenewResponse::Extended { .. }));
}

#[tokio::test]
async fn r08_a_server_whose_clock_went_back_stays_above_what_the_client_has_seen() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let seen = expect_granted(&store, &acquire_request("a", &token())).await.fence;
    // As if that fence had been issued an hour ahead of the server's current clock.
    let ahead = Fence::new(seen.get() + 3_600_000_000).unwrap();
    let _: () = run_command(&mut cli, "FLUSHALL").await;
    let mut acquire = acquire_request("a", &token());
    acquire.floor = Some(ahead);
    let next = expect_granted(&store, &acquire).await.fence;
    assert!(next > ahead, "{next} is not above {ahead}");
    release(&store, "a", &acquire.token).await;
    // The counter keeps it for clients that do not know that floor.
    assert!(expect_granted(&store, &acquire_request("a", &token())).await.fence > next);
}

#[tokio::test]
async fn r08_a_new_connection_distrusts_the_counter_it_finds() {
    let mut server = server_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(&server.url());
    let mine = token();
    let seen = expect_granted(&store, &acquire_request("a", &mine)).await.fence;
    release(&store, "a", &mine).await;
    // A counter that lags, as on a replica that was promoted too early.
    let mut cli = raw_connection(&server).await;
    let counters: Vec<String> = run_command(&mut cli, "KEYS lh1:fence:*").await;
    assert_eq!(counters.len(), 1);
    let _: () = run_command(&mut cli, &format!("SET {} 17", counters[0])).await;
    server.restart().await.unwrap();
    eventually("the death is noticed", || async { !format!("{store:?}").contains("connected: true") }).await;
    assert!(expect_granted(&store, &acquire_request("a", &token())).await.fence > seen);
}

#[tokio::test]
async fn r19_fences_keep_every_digit_up_to_the_largest_and_then_stop() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mine = token();
    let mut acquire = acquire_request("a", &mine);
    acquire.floor = Fence::new(Fence::MAX.get() - 3);
    for below in [2, 1, 0] {
        acquire.token = token();
        let fence = expect_granted(&store, &acquire).await.fence;
        assert_eq!(fence.get(), Fence::MAX.get() - below);
        let value: String = run_command(&mut cli, "GET lock:a").await;
        assert!(value.ends_with(&format!("|{}", Fence::MAX.get() - below)), "no exponent, no rounding");
        release(&store, "a", &acquire.token).await;
        acquire.floor = None;
    }
    let failure = store.acquire(&acquire_request("a", &token()), CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Corrupt, "{failure}");
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:a").await, None);

    // A server that has lost the counter must not issue the largest fence again
    // to a client that has seen it.
    let _: () = run_command(&mut cli, "FLUSHALL").await;
    acquire = acquire_request("a", &token());
    acquire.floor = Some(Fence::MAX);
    let failure = store.acquire(&acquire, CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Corrupt, "{failure}");
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:a").await, None);
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_reported_and_not_repaired() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mine = token();
    expect_granted(&store, &acquire_request("a", &mine)).await;
    release(&store, "a", &mine).await;
    let counters: Vec<String> = run_command(&mut cli, "KEYS lh1:fence:*").await;
    let _: () = run_command(&mut cli, &format!("SET {} seventeen", counters[0])).await;
    let failure = store.acquire(&acquire_request("a", &token()), CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Corrupt, "{failure}");
}
