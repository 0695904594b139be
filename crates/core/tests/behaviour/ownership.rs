//! Only the token's owner renews or releases (I4): late, repeated or foreign messages change nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use crate::fixture::{Fixture, name, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Grant, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
    SharedStore,
};
use leasehold_core::{HoldStatus, Holder, Loss, ReleaseOutcome, Token, Ttl};

fn new_token(holder: &str) -> Token {
    Token::fresh(&Holder::new(holder).unwrap(), "scheduler", &OsRandom)
}

async fn acquire_lease(store: &SharedStore, token: &Token, ttl: u64) -> Grant {
    let ask = AcquireRequest::new(name("job:1"), token.clone(), Ttl::new(secs(ttl)).unwrap());
    match store.acquire(&ask, secs(1)).await.unwrap() {
        AcquireResponse::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

async fn renew_lease(store: &SharedStore, token: &Token, grant: Grant, ttl: u64) -> RenewResponse {
    let ttl = Ttl::new(secs(ttl)).unwrap();
    let renewal = RenewRequest::new(name("job:1"), token.clone(), grant.fence, ttl);
    store.renew(&[renewal], secs(1)).await.remove(0).unwrap()
}

async fn release_lease(store: &SharedStore, token: &Token) -> ReleaseResponse {
    let giving = ReleaseRequest::by_owner(name("job:1"), token.clone());
    store.release(&giving, secs(1)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn token_uniqueness_across_acquires() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    for round in 0..300 {
        let client = if round % 2 == 0 { &a } else { &b };
        client.hold("scheduler", "job:1").await.release().await;
    }
    let asked = fixture.recorder.acquires();
    let tokens: HashSet<_> = asked.iter().map(|request| request.token.expose()).collect();
    assert_eq!((asked.len(), tokens.len()), (300, 300));
}

#[tokio::test(start_paused = true)]
async fn wrong_token_on_release_changes_nothing() {
    let fixture = Fixture::new();
    let (store, owner) = (fixture.recorder.store(), new_token("a"));
    acquire_lease(&store, &owner, 5).await;
    assert_eq!(release_lease(&store, &new_token("a")).await, ReleaseResponse::NotOwned);
    assert_eq!(fixture.live_lease("job:1").await.unwrap().remaining, Some(secs(5)));
    assert_eq!(release_lease(&store, &owner).await, ReleaseResponse::Released);
    assert_eq!(fixture.live_lease("job:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn wrong_token_on_renew_changes_nothing() {
    let fixture = Fixture::new();
    let (store, owner) = (fixture.recorder.store(), new_token("a"));
    let grant = acquire_lease(&store, &owner, 5).await;
    assert_eq!(renew_lease(&store, &new_token("b"), grant, 60).await, RenewResponse::NotOwned);
    assert_eq!(fixture.live_lease("job:1").await.unwrap().remaining, Some(secs(5)));
}

#[tokio::test(start_paused = true)]
async fn renew_after_expiry_is_refused_and_revives_nothing() {
    let fixture = Fixture::new();
    let (store, owner) = (fixture.recorder.store(), new_token("a"));
    let grant = acquire_lease(&store, &owner, 2).await;
    fixture.advance(secs(3)).await;
    assert_eq!(renew_lease(&store, &owner, grant, 5).await, RenewResponse::NotOwned);
    assert_eq!(fixture.live_lease("job:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn wrong_owner_after_expiry_can_neither_renew_nor_release() {
    let fixture = Fixture::new();
    let (store, first, second) = (fixture.recorder.store(), new_token("a"), new_token("b"));
    let old = acquire_lease(&store, &first, 2).await;
    fixture.advance(secs(3)).await;
    let new = acquire_lease(&store, &second, 10).await;
    assert!(new.fence > old.fence);
    assert_eq!(renew_lease(&store, &first, old, 60).await, RenewResponse::NotOwned);
    assert_eq!(release_lease(&store, &first).await, ReleaseResponse::NotOwned);
    let lease = fixture.live_lease("job:1").await.unwrap();
    assert_eq!((lease.holder.as_str(), lease.remaining), ("b", Some(secs(10))));
}

/// The client knows that the lease is over: the release is skipped, not attempted.
#[tokio::test(start_paused = true)]
async fn trap_12_a_stale_handle_cannot_delete_the_newer_lock() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let stale = a.hold("scheduler", "job:1").await;
    fixture.faults.renew().hang(true);
    fixture.advance(secs(61)).await;
    fixture.faults.renew().hang(false);
    let newer = b.hold("scheduler", "job:1").await;
    assert!(matches!(stale.status(), HoldStatus::Lost(_)));
    let releases = fixture.call_count(StoreOp::Release);
    assert_eq!(stale.release().await, ReleaseOutcome::Skipped);
    assert_eq!(fixture.call_count(StoreOp::Release), releases);
    assert_eq!(fixture.live_lease("job:1").await.unwrap().holder, "b");
    newer.check().unwrap();
    // The same for a dropped hold of the very client that holds the name again.
    newer.release().await;
    let stale = a.hold("scheduler", "job:1").await;
    fixture.memory.table().clear_all_data();
    fixture.advance(secs(21)).await;
    assert_eq!(stale.status(), HoldStatus::Lost(Loss::NotOwned));
    drop(stale);
    run_ready_tasks().await;
    let newer = a.hold("scheduler", "job:1").await;
    fixture.advance(secs(100)).await;
    newer.check().unwrap();
    assert_eq!(fixture.live_lease("job:1").await.unwrap().fence, Some(newer.fence().unwrap()));
}

/// Another client owns the name at release time, unnoticed by the holder: this is a result, not an error.
#[tokio::test(start_paused = true)]
async fn a_release_that_finds_another_owner_reports_already_lost() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    fixture.memory.table().clear_all_data();
    let other = b.hold("scheduler", "job:1").await;
    assert_eq!(hold.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(a.metric_total("not_owned_total", "release"), 1.0);
    assert_eq!(a.metric_total("release_total", "already_lost"), 1.0);
    other.check().unwrap();
    assert_eq!(fixture.live_lease("job:1").await.unwrap().holder, "b");
}

/// No token, whole or in part, in any output for people (O1).
#[tokio::test(start_paused = true)]
async fn no_secret_is_shown() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let busy = b.expect_busy("workflow", "job:1").await;
    let shown =
        format!("{hold:?} {busy:?} {busy} {:?} {:?} {:?}", a.history, b.history, fixture.recorder.acquires());
    for request in fixture.recorder.acquires() {
        assert!(!shown.contains(request.token.random()));
        assert!(shown.contains(&request.token.fingerprint()));
    }
}
