//! A hold of an earlier process is taken up again, or is known to be gone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use crate::bed::{Bed, Client, assert_at, name, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::clock::Moment;
use leasehold_core::event::What;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{Answer, Ask, Grant, Store};
use leasehold_core::{
    Acquired, Error, Fence, Hold, Holder, Left, Loss, Outcome, Request, Resumed, Token, Ttl,
};

/// What the earlier process has kept.
fn token() -> Token {
    let holder = Holder::new("worker-7").unwrap();
    Token::fresh(&holder, "scheduler", &*SeededRandom::shared(1))
}

fn request() -> Request {
    Request::new("scheduler", "job:1").unwrap().token(token())
}

/// The lease that the earlier process has got and left behind.
async fn left_behind(bed: &Bed) -> Fence {
    let ask = Ask::new(name("job:1"), token(), Ttl::new(secs(60)).unwrap());
    match bed.memory.acquire(&ask, secs(1)).await {
        Ok(Answer::Granted(Grant { fence, .. })) => fence,
        other => panic!("{other:?}"),
    }
}

async fn resumed(client: &Client, fence: Fence, age: u64) -> Hold {
    match client.resume(request(), fence, secs(age)).await {
        Ok(Resumed::Held(hold)) => hold,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_hold_lives_like_any_other() {
    let bed = Bed::new();
    let fence = left_behind(&bed).await;
    bed.pass(secs(30)).await;
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = resumed(&a, fence, 30).await;
    assert_eq!(hold.fence().unwrap(), fence, "the same grant");
    for _ in 0..10 {
        bed.pass(secs(25)).await;
        hold.check().unwrap();
        // Others see whose it is, and this process keeps others of its own out.
        assert_eq!(b.busy("workflow", "job:1").await.holder, "worker-7");
        assert!(a.busy("workflow", "job:1").await.held_here);
    }
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!(bed.lease("job:1").await, None);
    let story = [a.only("resumed"), a.only("released")];
    assert!(story.iter().all(|event| event.holder.as_str() == "worker-7"));
    assert_eq!(a.count("acquired"), 0, "nothing was acquired twice");
}

/// The renewal is answered late: what counts is when it was sent.
#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_before_the_renewal_was_sent() {
    let bed = Bed::new();
    let fence = left_behind(&bed).await;
    let a = bed.client("a");
    bed.chaos.renew().delay_reply(secs(1));
    let sent = bed.now();
    let hold = resumed(&a, fence, 0).await;
    assert_at(bed.now(), sent, secs(1));
    bed.chaos.renew().calm();
    bed.chaos.renew().hang(true);
    let lost = bed.lost(&hold).await;
    let usable = a.policies().class("scheduler", bed.now()).unwrap().usable();
    assert!(bed.now().since(sent) <= usable, "{:?}", bed.now().since(sent));
    assert!(matches!(lost.reason, Loss::Deadline | Loss::MaxFailures));
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_not_taken_up() {
    let bed = Bed::new();
    let a = bed.client("a");
    let fence = left_behind(&bed).await;
    // Another grant's fence, also of the same token, is another lease.
    let other = Fence::new(fence.get() + 1).unwrap();
    assert!(matches!(
        a.resume(request(), other, secs(0)).await,
        Ok(Resumed::Gone)
    ));
    assert_eq!(
        bed.lease("job:1").await.unwrap().fence,
        Some(fence),
        "nothing was changed"
    );
    bed.pass(secs(61)).await;
    assert!(matches!(
        a.resume(request(), fence, secs(61)).await,
        Ok(Resumed::Gone)
    ));
    // And nothing of it is in the way of the next one.
    let next = a.hold("scheduler", "job:1").await;
    assert!(next.fence().unwrap() > fence);
    assert!(matches!(
        a.resume(request(), fence, secs(61)).await,
        Ok(Resumed::Gone)
    ));
    next.check().unwrap();
    assert_eq!(a.count("resumed"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_has_not_said_no() {
    let bed = Bed::new();
    let a = bed.client("a");
    let fence = left_behind(&bed).await;
    bed.chaos.renew().hang(true);
    let refused = a.resume(request(), fence, secs(0)).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    bed.chaos.renew().hang(false);
    resumed(&a, fence, 4).await.check().unwrap();
}

/// `max_hold` counts from the grant, not from the restart.
#[tokio::test(start_paused = true)]
async fn max_hold_goes_on_counting() {
    let bed = Bed::new();
    let a = bed.client("a");
    let fence = left_behind(&bed).await;
    let hold = resumed(&a, fence, 14 * 60).await;
    let from = bed.now();
    assert_eq!(bed.lost(&hold).await.reason, Loss::MaxHold);
    assert_at(bed.now(), from, secs(60));
}

/// A machine that has been up for less time than the hold is old has no moment at which the hold began.
#[tokio::test(start_paused = true)]
async fn max_hold_goes_on_counting_soon_after_boot() {
    let bed = Bed::new();
    let policy = "[class.scheduler]\nmax_hold = \"90m\"";
    let a = bed.client_with("a", policy);
    let fence = left_behind(&bed).await;
    assert!(bed.now().since(Moment::ZERO) < secs(80 * 60));
    let hold = resumed(&a, fence, 80 * 60).await;
    let from = bed.now();
    assert_eq!(bed.lost(&hold).await.reason, Loss::MaxHold);
    assert_at(bed.now(), from, secs(10 * 60));
    settle().await;
    assert!(matches!(
        a.only("abandoned").what,
        What::Abandoned { held, .. } if held >= secs(90 * 60) && held < secs(90 * 60 + 1)
    ));
}

/// Whoever is at the gate may be waiting for the very lease that is to be taken up.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_this_process_does_not_mean_that_the_lease_is_gone() {
    let bed = Bed::new();
    let a = bed.client("a");
    let fence = left_behind(&bed).await;
    let waits = tokio::spawn(a.class("scheduler").wait(secs(30)).acquire("job:1"));
    bed.reached(Verb::Acquire, 1).await;
    settle().await;
    let refused = a.resume(request(), fence, secs(0)).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    // Once the waiter has gone, the hold is taken up, and nobody was let in beside it.
    let hold = resumed(&a, fence, 0).await;
    let answer = waits.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    assert_eq!((a.count("resumed"), a.count("acquired")), (1, 0));
    hold.check().unwrap();
    assert_eq!(bed.lease("job:1").await.unwrap().fence, Some(fence));
    // And a waiter that has got in means that it is.
    assert_eq!(hold.release().await, Outcome::Released);
    let _next = a.hold("scheduler", "job:1").await;
    let gone = a.resume(request(), fence, secs(0)).await;
    assert!(matches!(gone, Ok(Resumed::Gone)), "{gone:?}");
}

/// The lease was broken while it was waited for at the gate: what was known of it before says nothing any more.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_while_it_was_waited_for_is_gone() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let fence = left_behind(&bed).await;
    let waits = tokio::spawn(a.class("scheduler").wait(secs(30)).acquire("job:1"));
    bed.reached(Verb::Acquire, 1).await;
    settle().await;
    let resuming = tokio::spawn(a.resume(request(), fence, secs(0)));
    bed.reached(Verb::Renew, 1).await;
    settle().await;
    b.break_lease(&name("job:1"), fence, "an operator").await.unwrap();
    let hold = waits.await.unwrap().unwrap().held().unwrap();
    assert!(!resuming.is_finished());
    hold.release().await;
    let gone = resuming.await.unwrap();
    assert!(matches!(gone, Ok(Resumed::Gone)), "{gone:?}");
    assert_eq!((a.names_here(), a.count("resumed")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_up_once_the_client_shuts_down() {
    let bed = Bed::new();
    let a = bed.client("a");
    let fence = left_behind(&bed).await;
    bed.chaos.renew().delay_reply(secs(1));
    let resuming = tokio::spawn(a.resume(request(), fence, secs(0)));
    bed.reached(Verb::Renew, 1).await;
    let from = bed.now();
    let report = a.shutdown(secs(5)).await;
    assert_eq!((report.fenced, report.remains), (0, Left::default()));
    let closed = resuming.await.unwrap();
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    assert_eq!(bed.now(), from, "told at once");
    bed.pass(secs(2)).await;
    assert_eq!((a.left().await, a.names_here()), (Left::default(), 0));
    assert_eq!(a.count("resumed"), 0);
}

/// What the earlier process has asked may still be on its way: it is undone if the hold ends without giving its lease back.
#[tokio::test(start_paused = true)]
async fn what_the_earlier_process_asked_is_undone_when_the_lease_is_gone() {
    let bed = Bed::new();
    let fence = left_behind(&bed).await;
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = resumed(&a, fence, 1).await;
    b.break_lease(&name("job:1"), fence, "a test").await.unwrap();
    assert_eq!(bed.lost(&hold).await.reason, Loss::NotOwned);
    assert_eq!(hold.release().await, Outcome::Skipped);
    a.idle().await;
    let late = Ask::new(name("job:1"), token(), Ttl::new(secs(60)).unwrap());
    assert_eq!(bed.memory.acquire(&late, secs(1)).await.unwrap(), Answer::Void);
    assert_eq!(bed.lease("job:1").await, None);
}
