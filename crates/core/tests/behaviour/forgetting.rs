//! An acquire that was answered at its second try has a first one that may still arrive. If its hold then ends without a release, what
//! that is granted belongs to nobody, and keeps the name shut for a whole TTL: it is undone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed::{Bed, Client, ms, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::store::{Answer, Ask};
use leasehold_core::{Hold, Left, Outcome, Ttl};

/// Two asks of one token are sent, the first of which has not arrived yet.
async fn held(bed: &Bed, a: &Client, class: &str) -> Hold {
    bed.chaos.acquire().vanish_next(1);
    let hold = a.hold(class, "job:1").await;
    assert_eq!(bed.calls(Verb::Acquire), 2);
    hold
}

/// The first one arrives.
async fn arrives(bed: &Bed) -> Answer {
    let late = bed.tap.asked().remove(0);
    let ask = Ask::new(late.name, late.token, Ttl::new(secs(30)).unwrap());
    bed.tap.store().acquire(&ask, secs(1)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_arrives_after_an_abandoned_lease_is_refused() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = held(&bed, &a, "workflow-critical").await;
    bed.chaos.renew().down(true);
    bed.lost(&hold).await;
    assert_eq!(hold.release().await, Outcome::Skipped);
    settle().await;
    // The lease is left alone as long as it is one.
    let later = Left {
        later: 1,
        ..Left::default()
    };
    assert_eq!(a.left().await, later);
    assert!(bed.lease("job:1").await.is_some());
    while bed.lease("job:1").await.is_some() {
        assert_eq!(bed.calls(Verb::Release), 0);
        bed.pass(ms(100)).await;
    }
    a.idle().await;
    assert_eq!((bed.calls(Verb::Release), a.count("undone")), (1, 1));
    assert_eq!(arrives(&bed).await, Answer::Void);
    assert_eq!(bed.lease("job:1").await, None);
}

/// It may be faster than that: then its lease is ended.
#[tokio::test(start_paused = true)]
async fn what_arrives_before_the_undo_is_ended_by_it() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = held(&bed, &a, "workflow-critical").await;
    bed.chaos.all().down(true);
    bed.lost(&hold).await;
    hold.release().await;
    bed.pass(secs(30)).await;
    bed.chaos.acquire().calm();
    assert!(matches!(arrives(&bed).await, Answer::Granted(_)));
    assert!(bed.lease("job:1").await.is_some(), "to nobody");
    bed.chaos.all().down(false);
    a.idle().await;
    assert_eq!(bed.lease("job:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn what_arrives_after_a_lease_that_was_kept_is_refused() {
    const WINDOW: &str = r#"
[class.window]
ttl = "10s"
release = { when = "expired" }
"#;
    let bed = Bed::new();
    let a = bed.client_with("a", WINDOW);
    let hold = held(&bed, &a, "window").await;
    assert!(matches!(hold.release().await, Outcome::Kept { .. }));
    bed.pass(secs(9)).await;
    assert!(bed.lease("job:1").await.is_some(), "the window is not over");
    a.idle().await;
    assert_eq!(arrives(&bed).await, Answer::Void);
    assert_eq!(bed.lease("job:1").await, None);
}

/// Whoever ends the client does not wait for the end of a lease that nobody is going to give back.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_it_and_says_so() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = held(&bed, &a, "workflow-critical").await;
    bed.chaos.renew().down(true);
    bed.lost(&hold).await;
    hold.release().await;
    let from = bed.now();
    let ended = a.locks.shutdown(secs(5)).await;
    assert!(bed.now().since(from) < secs(1), "{:?}", bed.now().since(from));
    assert_eq!((ended.fenced, ended.remains.later), (0, 1));
    // As long as the process is there, it is done all the same.
    a.idle().await;
    assert_eq!(arrives(&bed).await, Answer::Void);
}
