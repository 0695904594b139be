//! A hold of an earlier process is resumed, or is known to be gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::fixture::{Client, Fixture, assert_at, name, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::clock::Moment;
use leasehold_core::event::EventKind;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireRequest, AcquireResponse, Grant, Store};
use leasehold_core::{
    Acquired, Error, Fence, Hold, Holder, Loss, PendingWork, ReleaseOutcome, Request, ResumeOutcome, Token,
    Ttl,
};

/// The token that the earlier process saved.
fn earlier_token() -> Token {
    let holder = Holder::new("worker-7").unwrap();
    Token::fresh(&holder, "scheduler", &*SeededRandom::shared(1))
}

fn resume_request() -> Request {
    Request::new("scheduler", "job:1").unwrap().token(earlier_token())
}

/// The lease that the earlier process acquired and left in the store.
async fn acquire_as_earlier_process(fixture: &Fixture) -> Fence {
    let ask = AcquireRequest::new(name("job:1"), earlier_token(), Ttl::new(secs(60)).unwrap());
    match fixture.memory.acquire(&ask, secs(1)).await {
        Ok(AcquireResponse::Granted(Grant { fence, .. })) => fence,
        other => panic!("{other:?}"),
    }
}

async fn resume_hold(client: &Client, fence: Fence, age: u64) -> Hold {
    match client.resume(resume_request(), fence, secs(age)).await {
        Ok(ResumeOutcome::Held(hold)) => hold,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_hold_behaves_like_any_other() {
    let fixture = Fixture::new();
    let fence = acquire_as_earlier_process(&fixture).await;
    fixture.advance(secs(30)).await;
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = resume_hold(&a, fence, 30).await;
    assert_eq!(hold.fence().unwrap(), fence, "the same grant");
    for _ in 0..10 {
        fixture.advance(secs(25)).await;
        hold.check().unwrap();
        // Other clients see the holder, and other tasks of this process are excluded.
        assert_eq!(b.expect_busy("workflow", "job:1").await.holder, "worker-7");
        assert!(a.expect_busy("workflow", "job:1").await.held_here);
    }
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!(fixture.live_lease("job:1").await, None);
    let story = [a.only_event("resumed"), a.only_event("released")];
    assert!(story.iter().all(|event| event.holder.as_str() == "worker-7"));
    assert_eq!(a.event_count("acquired"), 0, "nothing was acquired twice");
}

/// The renewal is answered late: the deadline counts from when it was sent.
#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_before_the_renewal_was_sent() {
    let fixture = Fixture::new();
    let fence = acquire_as_earlier_process(&fixture).await;
    let a = fixture.client("a");
    fixture.faults.renew().delay_reply(secs(1));
    let sent = fixture.now();
    let hold = resume_hold(&a, fence, 0).await;
    assert_at(fixture.now(), sent, secs(1));
    fixture.faults.renew().clear();
    fixture.faults.renew().hang(true);
    let lost = fixture.wait_for_loss(&hold).await;
    let usable = a.policies().class("scheduler", fixture.now()).unwrap().usable();
    assert!(fixture.now().since(sent) <= usable, "{:?}", fixture.now().since(sent));
    assert!(matches!(lost.reason, Loss::Deadline | Loss::MaxFailures));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_resumed() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let fence = acquire_as_earlier_process(&fixture).await;
    // A grant with another fence is another lease, even for the same token.
    let other = Fence::new(fence.get() + 1).unwrap();
    assert!(matches!(a.resume(resume_request(), other, secs(0)).await, Ok(ResumeOutcome::Gone)));
    assert_eq!(fixture.live_lease("job:1").await.unwrap().fence, Some(fence), "nothing was changed");
    fixture.advance(secs(61)).await;
    assert!(matches!(a.resume(resume_request(), fence, secs(61)).await, Ok(ResumeOutcome::Gone)));
    // The failed resume does not block the next acquire.
    let next = a.hold("scheduler", "job:1").await;
    assert!(next.fence().unwrap() > fence);
    assert!(matches!(a.resume(resume_request(), fence, secs(61)).await, Ok(ResumeOutcome::Gone)));
    next.check().unwrap();
    assert_eq!(a.event_count("resumed"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_missing_response_does_not_mean_the_lease_is_gone() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let fence = acquire_as_earlier_process(&fixture).await;
    fixture.faults.renew().hang(true);
    let refused = a.resume(resume_request(), fence, secs(0)).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    fixture.faults.renew().hang(false);
    resume_hold(&a, fence, 4).await.check().unwrap();
}

/// `max_hold` counts from the grant, not from the restart.
#[tokio::test(start_paused = true)]
async fn max_hold_continues_from_the_grant() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let fence = acquire_as_earlier_process(&fixture).await;
    let hold = resume_hold(&a, fence, 14 * 60).await;
    let from = fixture.now();
    assert_eq!(fixture.wait_for_loss(&hold).await.reason, Loss::MaxHold);
    assert_at(fixture.now(), from, secs(60));
}

/// The machine's uptime is shorter than the age of the hold, so the start of the hold has no `Moment`.
#[tokio::test(start_paused = true)]
async fn max_hold_continues_from_the_grant_soon_after_boot() {
    let fixture = Fixture::new();
    let policy = "[class.scheduler]\nmax_hold = \"90m\"";
    let a = fixture.client_with("a", policy);
    let fence = acquire_as_earlier_process(&fixture).await;
    assert!(fixture.now().since(Moment::ZERO) < secs(80 * 60));
    let hold = resume_hold(&a, fence, 80 * 60).await;
    let from = fixture.now();
    assert_eq!(fixture.wait_for_loss(&hold).await.reason, Loss::MaxHold);
    assert_at(fixture.now(), from, secs(10 * 60));
    run_ready_tasks().await;
    assert!(matches!(
        a.only_event("abandoned").what,
        EventKind::Abandoned { held, .. } if held >= secs(90 * 60) && held < secs(90 * 60 + 1)
    ));
}

/// A waiter at the gate may wait for the very lease that is to be resumed.
#[tokio::test(start_paused = true)]
async fn a_local_waiter_does_not_mean_that_the_lease_is_gone() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let fence = acquire_as_earlier_process(&fixture).await;
    let waits = tokio::spawn(a.class("scheduler").wait(secs(30)).acquire("job:1"));
    fixture.wait_for_calls(StoreOp::Acquire, 1).await;
    run_ready_tasks().await;
    let refused = a.resume(resume_request(), fence, secs(0)).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    // Once the waiter has left, the hold is resumed, and no other task was admitted meanwhile.
    let hold = resume_hold(&a, fence, 0).await;
    let answer = waits.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    assert_eq!((a.event_count("resumed"), a.event_count("acquired")), (1, 0));
    hold.check().unwrap();
    assert_eq!(fixture.live_lease("job:1").await.unwrap().fence, Some(fence));
    // If a waiter was granted the name, the old lease is gone.
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    let _next = a.hold("scheduler", "job:1").await;
    let gone = a.resume(resume_request(), fence, secs(0)).await;
    assert!(matches!(gone, Ok(ResumeOutcome::Gone)), "{gone:?}");
}

/// The lease was broken while the resume waited at the gate: its earlier renewal proves nothing any more.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_resume_waits_at_the_gate_is_gone() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let fence = acquire_as_earlier_process(&fixture).await;
    let waits = tokio::spawn(a.class("scheduler").wait(secs(30)).acquire("job:1"));
    fixture.wait_for_calls(StoreOp::Acquire, 1).await;
    run_ready_tasks().await;
    let resuming = tokio::spawn(a.resume(resume_request(), fence, secs(0)));
    fixture.wait_for_calls(StoreOp::Renew, 1).await;
    run_ready_tasks().await;
    b.break_lease(&name("job:1"), fence, "an operator").await.unwrap();
    let hold = waits.await.unwrap().unwrap().held().unwrap();
    assert!(!resuming.is_finished());
    hold.release().await;
    let gone = resuming.await.unwrap();
    assert!(matches!(gone, Ok(ResumeOutcome::Gone)), "{gone:?}");
    assert_eq!((a.local_name_count(), a.event_count("resumed")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_resumed_during_shutdown() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let fence = acquire_as_earlier_process(&fixture).await;
    fixture.faults.renew().delay_reply(secs(1));
    let resuming = tokio::spawn(a.resume(resume_request(), fence, secs(0)));
    fixture.wait_for_calls(StoreOp::Renew, 1).await;
    let from = fixture.now();
    let report = a.shutdown(secs(5)).await;
    assert_eq!((report.fenced, report.pending), (0, PendingWork::default()));
    let closed = resuming.await.unwrap();
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    assert_eq!(fixture.now(), from, "told at once");
    fixture.advance(secs(2)).await;
    assert_eq!((a.pending().await, a.local_name_count()), (PendingWork::default(), 0));
    assert_eq!(a.event_count("resumed"), 0);
}

/// Requests of the earlier process may still be in flight. They are undone if the hold ends without a release.
#[tokio::test(start_paused = true)]
async fn late_requests_of_the_earlier_process_are_undone() {
    let fixture = Fixture::new();
    let fence = acquire_as_earlier_process(&fixture).await;
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = resume_hold(&a, fence, 1).await;
    b.break_lease(&name("job:1"), fence, "a test").await.unwrap();
    assert_eq!(fixture.wait_for_loss(&hold).await.reason, Loss::NotOwned);
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    a.wait_until_idle().await;
    let late = AcquireRequest::new(name("job:1"), earlier_token(), Ttl::new(secs(60)).unwrap());
    assert_eq!(fixture.memory.acquire(&late, secs(1)).await.unwrap(), AcquireResponse::Void);
    assert_eq!(fixture.live_lease("job:1").await, None);
}
