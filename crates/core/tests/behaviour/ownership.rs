//! Only the token's owner renews or releases (I4): late, repeated or foreign messages change nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::HashSet;

use crate::bed::{Bed, ms, name, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{Answer, Ask, Given, Giving, Grant, Renewal, Renewed, SharedStore};
use leasehold_core::{Holder, Loss, Outcome, Standing, Token, Ttl};

fn token(holder: &str) -> Token {
    Token::fresh(&Holder::new(holder).unwrap(), "scheduler", &OsRandom)
}

async fn take(store: &SharedStore, token: &Token, ttl: u64) -> Grant {
    let ask = Ask::new(name("job:1"), token.clone(), Ttl::new(secs(ttl)).unwrap());
    match store.acquire(&ask, secs(1)).await.unwrap() {
        Answer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

async fn renew(store: &SharedStore, token: &Token, grant: Grant, ttl: u64) -> Renewed {
    let renewal = Renewal {
        name: name("job:1"),
        token: token.clone(),
        fence: grant.fence,
        ttl: Ttl::new(secs(ttl)).unwrap(),
        lock_delay: ms(0),
    };
    store.renew(&[renewal], secs(1)).await.remove(0).unwrap()
}

async fn release(store: &SharedStore, token: &Token) -> Given {
    let giving = Giving::owned(name("job:1"), token.clone());
    store.release(&giving, secs(1)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn token_uniqueness_across_acquires() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    for round in 0..300 {
        let client = if round % 2 == 0 { &a } else { &b };
        client.hold("scheduler", "job:1").await.release().await;
    }
    let asked = bed.tap.asked();
    let tokens: HashSet<_> = asked.iter().map(|ask| ask.token.expose()).collect();
    assert_eq!((asked.len(), tokens.len()), (300, 300));
}

#[tokio::test(start_paused = true)]
async fn wrong_token_on_release_changes_nothing() {
    let bed = Bed::new();
    let (store, owner) = (bed.tap.store(), token("a"));
    take(&store, &owner, 5).await;
    assert_eq!(release(&store, &token("a")).await, Given::NotOwned);
    assert_eq!(bed.lease("job:1").await.unwrap().remaining, Some(secs(5)));
    assert_eq!(release(&store, &owner).await, Given::Released);
    assert_eq!(bed.lease("job:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn wrong_token_on_renew_changes_nothing() {
    let bed = Bed::new();
    let (store, owner) = (bed.tap.store(), token("a"));
    let grant = take(&store, &owner, 5).await;
    assert_eq!(renew(&store, &token("b"), grant, 60).await, Renewed::NotOwned);
    assert_eq!(bed.lease("job:1").await.unwrap().remaining, Some(secs(5)));
}

#[tokio::test(start_paused = true)]
async fn renew_after_expiry_is_refused_and_revives_nothing() {
    let bed = Bed::new();
    let (store, owner) = (bed.tap.store(), token("a"));
    let grant = take(&store, &owner, 2).await;
    bed.pass(secs(3)).await;
    assert_eq!(renew(&store, &owner, grant, 5).await, Renewed::NotOwned);
    assert_eq!(bed.lease("job:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn wrong_owner_after_expiry_can_neither_renew_nor_release() {
    let bed = Bed::new();
    let (store, first, second) = (bed.tap.store(), token("a"), token("b"));
    let old = take(&store, &first, 2).await;
    bed.pass(secs(3)).await;
    let new = take(&store, &second, 10).await;
    assert!(new.fence > old.fence);
    assert_eq!(renew(&store, &first, old, 60).await, Renewed::NotOwned);
    assert_eq!(release(&store, &first).await, Given::NotOwned);
    let lease = bed.lease("job:1").await.unwrap();
    assert_eq!((lease.holder.as_str(), lease.remaining), ("b", Some(secs(10))));
}

/// The owner's own answer for a lease that is over, through the client: the release is skipped, not tried.
#[tokio::test(start_paused = true)]
async fn trap_12_a_stale_handle_cannot_delete_the_newer_lock() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let stale = a.hold("scheduler", "job:1").await;
    bed.chaos.renew().hang(true);
    bed.pass(secs(61)).await;
    bed.chaos.renew().hang(false);
    let newer = b.hold("scheduler", "job:1").await;
    assert!(matches!(stale.standing(), Standing::Lost(_)));
    let releases = bed.calls(Verb::Release);
    assert_eq!(stale.release().await, Outcome::Skipped);
    assert_eq!(bed.calls(Verb::Release), releases);
    assert_eq!(bed.lease("job:1").await.unwrap().holder, "b");
    newer.check().unwrap();
    // And one that is only dropped, of the very client that holds the name again.
    newer.release().await;
    let stale = a.hold("scheduler", "job:1").await;
    bed.memory.table().lose_everything();
    bed.pass(secs(21)).await;
    assert_eq!(stale.standing(), Standing::Lost(Loss::NotOwned));
    drop(stale);
    settle().await;
    let newer = a.hold("scheduler", "job:1").await;
    bed.pass(secs(100)).await;
    newer.check().unwrap();
    assert_eq!(
        bed.lease("job:1").await.unwrap().fence,
        Some(newer.fence().unwrap())
    );
}

/// Someone else has the name by the time of the release, and the holder has not noticed: an answer, not a fault.
#[tokio::test(start_paused = true)]
async fn a_release_that_finds_another_owner_says_already_lost() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    bed.memory.table().lose_everything();
    let other = b.hold("scheduler", "job:1").await;
    assert_eq!(hold.release().await, Outcome::AlreadyLost);
    assert_eq!(a.total("not_owned_total", "release"), 1.0);
    assert_eq!(a.total("release_total", "already_lost"), 1.0);
    other.check().unwrap();
    assert_eq!(bed.lease("job:1").await.unwrap().holder, "b");
}

/// No token, whole or in part, in anything people read (O1).
#[tokio::test(start_paused = true)]
async fn no_secret_is_shown() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let busy = b.busy("workflow", "job:1").await;
    let shown = format!(
        "{hold:?} {busy:?} {busy} {:?} {:?} {:?}",
        a.history,
        b.history,
        bed.tap.asked()
    );
    for ask in bed.tap.asked() {
        assert!(!shown.contains(ask.token.random()));
        assert!(shown.contains(&ask.token.fingerprint()));
    }
}
