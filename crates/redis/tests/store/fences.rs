//! Fences only grow, whatever the server forgets.

use std::time::Duration;

use leasehold_core::store::{Cause, Claim, Given, Giving, Renewed, Store};
use leasehold_core::word::Fence;

use crate::stage::{
    WITHIN, ask, eventually, give, grant, name, open, raw, renew, renewal, run, server, server_with, token,
    ttl,
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
    grows("first", grant(&store, &ask("a", &mine)).await.fence);
    give(&store, "a", &mine).await;

    let mut brief = ask("a", &token());
    brief.ttl = ttl(Duration::from_millis(100));
    let expiring = grant(&store, &brief).await.fence;
    grows("release", expiring);
    eventually("it expired", || async {
        store.inspect(&name("a"), WITHIN).await.unwrap().is_none()
    })
    .await;

    let broken = grant(&store, &ask("a", &token())).await.fence;
    grows("expiry", broken);
    let breaking = Giving {
        name: name("a"),
        claim: Claim::Seen(broken),
        tombstone: None,
    };
    assert_eq!(store.release(&breaking, WITHIN).await.unwrap(), Given::Released);
    grows("break", grant(&store, &ask("a", &token())).await.fence);

    // R8: all data gone while the connection stays.
    let _: () = run(&mut raw(&server).await, "FLUSHALL").await;
    grows("flush", grant(&store, &ask("a", &token())).await.fence);

    // R8: all data gone with the server.
    server.restart().await.unwrap();
    eventually("the death is noticed", || async {
        !format!("{store:?}").contains("connected: true")
    })
    .await;
    grows(
        "restart without persistence",
        grant(&store, &ask("a", &token())).await.fence,
    );
}

#[tokio::test]
async fn trap_12_a_stale_handle_cannot_touch_the_newer_lock() {
    let server = server().await;
    let store = open(&server.url());
    let old = token();
    let granted = grant(&store, &ask("a", &old)).await;
    assert_eq!(give(&store, "a", &old).await, Given::Released);
    let new = token();
    let newer = grant(&store, &ask("a", &new)).await;
    assert_eq!(give(&store, "a", &old).await, Given::NotOwned);
    assert_eq!(
        renew(&store, renewal("a", &old, granted)).await,
        Renewed::NotOwned
    );
    // The newer token with the older fence is another grant, too.
    assert_eq!(
        renew(&store, renewal("a", &new, granted)).await,
        Renewed::NotOwned
    );
    assert!(matches!(
        renew(&store, renewal("a", &new, newer)).await,
        Renewed::Extended { .. }
    ));
}

#[tokio::test]
async fn r08_a_server_whose_clock_went_back_stays_above_what_the_client_has_seen() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let seen = grant(&store, &ask("a", &token())).await.fence;
    // As if that fence had been issued an hour ahead of the clock the server has now.
    let ahead = Fence::new(seen.get() + 3_600_000_000).unwrap();
    let _: () = run(&mut cli, "FLUSHALL").await;
    let mut asking = ask("a", &token());
    asking.floor = Some(ahead);
    let next = grant(&store, &asking).await.fence;
    assert!(next > ahead, "{next} is not above {ahead}");
    give(&store, "a", &asking.token).await;
    // And the counter remembers it for those who do not know that floor.
    assert!(grant(&store, &ask("a", &token())).await.fence > next);
}

#[tokio::test]
async fn r08_a_new_connection_distrusts_the_counter_it_finds() {
    let mut server = server_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(&server.url());
    let mine = token();
    let seen = grant(&store, &ask("a", &mine)).await.fence;
    give(&store, "a", &mine).await;
    // A counter that lags, as on a replica that was promoted too early.
    let mut cli = raw(&server).await;
    let counters: Vec<String> = run(&mut cli, "KEYS lh1:fence:*").await;
    assert_eq!(counters.len(), 1);
    let _: () = run(&mut cli, &format!("SET {} 17", counters[0])).await;
    server.restart().await.unwrap();
    eventually("the death is noticed", || async {
        !format!("{store:?}").contains("connected: true")
    })
    .await;
    assert!(grant(&store, &ask("a", &token())).await.fence > seen);
}

#[tokio::test]
async fn r19_fences_keep_every_digit_up_to_the_largest_and_then_stop() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mine = token();
    let mut asking = ask("a", &mine);
    asking.floor = Fence::new(Fence::MAX.get() - 3);
    for below in [2, 1, 0] {
        asking.token = token();
        let fence = grant(&store, &asking).await.fence;
        assert_eq!(fence.get(), Fence::MAX.get() - below);
        let value: String = run(&mut cli, "GET lock:a").await;
        assert!(
            value.ends_with(&format!("|{}", Fence::MAX.get() - below)),
            "no exponent, no rounding"
        );
        give(&store, "a", &asking.token).await;
        asking.floor = None;
    }
    let failure = store.acquire(&ask("a", &token()), WITHIN).await.unwrap_err();
    assert!(!failure.unknown && failure.cause == Cause::Corrupt, "{failure}");
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:a").await, None);

    // Nor is the largest issued again to one who has seen it, by a server that has forgotten it.
    let _: () = run(&mut cli, "FLUSHALL").await;
    asking = ask("a", &token());
    asking.floor = Some(Fence::MAX);
    let failure = store.acquire(&asking, WITHIN).await.unwrap_err();
    assert!(!failure.unknown && failure.cause == Cause::Corrupt, "{failure}");
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:a").await, None);
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_reported_and_not_repaired() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mine = token();
    grant(&store, &ask("a", &mine)).await;
    give(&store, "a", &mine).await;
    let counters: Vec<String> = run(&mut cli, "KEYS lh1:fence:*").await;
    let _: () = run(&mut cli, &format!("SET {} seventeen", counters[0])).await;
    let failure = store.acquire(&ask("a", &token()), WITHIN).await.unwrap_err();
    assert!(!failure.unknown && failure.cause == Cause::Corrupt, "{failure}");
}
