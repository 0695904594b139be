//! `continue`: work goes on without proof of the lease. The overlap is measured, and the lease is
//! re-acquired when possible.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use crate::fixture::{Fixture, assert_at, ms, overlap, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::event::EventKind;
use leasehold_core::policy::Class;
use leasehold_core::rng::SeededRandom;
use leasehold_core::{Fence, HoldStatus, Holder, ReleaseOutcome, Request, ResumeOutcome, Token, TokenSource};

fn usable_time() -> std::time::Duration {
    secs(30) - Class::default_drift(secs(30))
}

#[tokio::test(start_paused = true)]
async fn unproven_from_the_deadline_on_then_proven_again_by_a_late_renewal() {
    let fixture = Fixture::new();
    // The store keeps the lease longer than the holder counts, so that a late renewal still finds it.
    let a = fixture.client_with("a", "[class.workflow]\nrelease = { lock_delay = \"60s\" }");
    let (hold, from) = (a.hold("workflow", "run:1").await, fixture.now());
    let fence = hold.fence().unwrap();
    fixture.faults.renew().down(true);
    fixture.advance(secs(50)).await;
    assert_at(a.only_event("unproven").at, from, usable_time());
    assert_eq!(hold.status(), HoldStatus::Unproven);
    hold.check().expect("the class lets it go on");
    assert!(!hold.cancellation().is_cancelled());
    fixture.faults.renew().down(false);
    fixture.advance(secs(6)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert_eq!(hold.fence().unwrap(), fence, "the same lease");
    let again = a.only_event("proven_again");
    assert!(matches!(again.what, EventKind::ProvenAgain { retaken: false, .. }));
    let measured = overlap(&again);
    let truth = again.at.since(from + usable_time());
    assert!(measured.abs_diff(truth) <= ms(1), "{measured:?} {truth:?}");
    assert_eq!(a.metric_total("overlap_seconds_total", ""), measured.as_secs_f64());
    assert_eq!((a.event_count("abandoned"), a.event_count("overlap_confirmed")), (0, 0));
    fixture.advance(secs(100)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
}

/// Work may go on longer than the lease proves exclusivity.
#[tokio::test(start_paused = true)]
async fn a_hold_is_proven_for_as_long_as_its_lease_and_no_longer() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(hold.proven_for(), usable_time());
    assert!(hold.remaining() > secs(600), "{:?}", hold.remaining());
    fixture.faults.renew().down(true);
    fixture.advance(secs(5)).await;
    assert_eq!(hold.proven_for(), usable_time() - secs(5));
    fixture.advance(usable_time() - secs(5)).await;
    assert_eq!((hold.status(), hold.proven_for()), (HoldStatus::Unproven, secs(0)));
    fixture.faults.renew().down(false);
    fixture.advance(secs(40)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    let left = hold.proven_for();
    assert!(left > secs(0) && left <= usable_time(), "{left:?}");
    // The same applies in a class with `fence`.
    let strict = a.hold("scheduler", "job:1").await;
    assert_eq!(strict.proven_for(), strict.remaining());
}

/// `max_hold` ends the work and its proof, whatever the lease's remaining time.
#[tokio::test(start_paused = true)]
async fn nothing_is_proven_past_max_hold() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", "[class.workflow]\nmax_hold = \"35s\"");
    let hold = a.hold("workflow", "run:1").await;
    // The lease was renewed meanwhile and lasts longer than `max_hold`.
    fixture.advance(secs(25)).await;
    assert_eq!((hold.proven_for(), hold.remaining()), (secs(10), secs(10)));
    fixture.advance(secs(11)).await;
    assert_eq!(hold.proven_for(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_free_lease_is_reacquired_with_a_greater_fence() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let (hold, from) = (a.hold("workflow", "run:1").await, fixture.now());
    let fence = hold.fence().unwrap();
    fixture.faults.renew().down(true);
    fixture.advance(secs(60)).await;
    assert_eq!(fixture.live_lease("run:1").await, None, "expired");
    fixture.faults.renew().down(false);
    fixture.advance(secs(6)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert!(hold.fence().unwrap() > fence);
    assert_eq!(fixture.live_lease("run:1").await.unwrap().fence, hold.fence().ok());
    let again = a.only_event("proven_again");
    assert!(matches!(again.what, EventKind::ProvenAgain { retaken: true, .. }));
    assert!(overlap(&again).abs_diff(again.at.since(from + usable_time())) <= ms(1));
    assert_eq!((a.event_count("not_owned"), a.event_count("abandoned")), (1, 0));
    // The new lease is renewed and released like the old one.
    fixture.advance(secs(100)).await;
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!(fixture.live_lease("run:1").await, None);
}

/// A token source that records what a later process needs to resume the hold.
#[derive(Debug, Default)]
struct RecordingTokenSource {
    issued: Mutex<Vec<Token>>,
    adopted: Mutex<Vec<(Token, Fence)>>,
}

impl TokenSource for RecordingTokenSource {
    fn next_token(&self) -> Option<Token> {
        let mut made = self.issued.lock().unwrap();
        let holder = Holder::new("worker-7").unwrap();
        let seed = 100 + u64::try_from(made.len()).unwrap();
        made.push(Token::fresh(&holder, "workflow", &*SeededRandom::shared(seed)));
        made.last().cloned()
    }

    fn token_adopted(&self, token: &Token, fence: Fence) {
        self.adopted.lock().unwrap().push((token.clone(), fence));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reacquired_lease_can_be_resumed_by_another_process() {
    let fixture = Fixture::new();
    let (a, b, kept) = (fixture.client("a"), fixture.client("b"), Arc::new(RecordingTokenSource::default()));
    let request = || Request::new("workflow", "run:1").unwrap();
    let held = a.acquire(request().token_source(Arc::clone(&kept) as _)).await;
    let hold = held.unwrap().held().unwrap();
    let first = hold.fence().unwrap();
    assert!(kept.issued.lock().unwrap().is_empty() && kept.adopted.lock().unwrap().is_empty());
    fixture.faults.renew().down(true);
    // All attempts of one heal use one token, whatever the outcome of the earlier ones.
    fixture.faults.acquire().lose_reply(1);
    fixture.advance(secs(60)).await;
    fixture.faults.renew().down(false);
    fixture.advance(secs(20)).await;
    let fence = hold.fence().unwrap();
    assert!(fence > first);
    let made = kept.issued.lock().unwrap().clone();
    assert_eq!(made.len(), 1);
    assert_eq!(*kept.adopted.lock().unwrap(), [(made[0].clone(), fence)]);
    // The process has died: its lease stays in the store.
    std::mem::forget(hold);
    let again = b.resume(request().token(made[0].clone()), fence, secs(80)).await;
    assert!(matches!(again, Ok(ResumeOutcome::Held(hold)) if hold.fence() == Ok(fence)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_to_another_client_confirms_the_overlap_once() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let (hold, from) = (a.hold("workflow", "run:1").await, fixture.now());
    fixture.faults.renew().down(true);
    fixture.advance(secs(31)).await;
    fixture.faults.renew().down(false);
    let other = b.hold("workflow-critical", "run:1").await;
    fixture.advance(secs(120)).await;
    assert_eq!((a.event_count("overlap_confirmed"), a.metric_total("overlap_confirmed_total", "")), (1, 1.0));
    assert_eq!(hold.status(), HoldStatus::Unproven);
    hold.check().unwrap();
    other.check().expect("the new owner is not disturbed");
    assert_eq!(hold.release().await, ReleaseOutcome::AlreadyLost);
    let ended = a.only_event("overlap_ended");
    assert!(overlap(&ended).abs_diff(ended.at.since(from + usable_time())) <= ms(1));
    assert_eq!(a.metric_total("overlap_seconds_total", ""), overlap(&ended).as_secs_f64());
    run_ready_tasks().await;
    assert_eq!(fixture.live_lease("run:1").await.unwrap().holder, "b");
}

/// The other hold ends first: this hold gets its lease back and is proven again.
#[tokio::test(start_paused = true)]
async fn a_lease_is_reacquired_after_the_other_holder_ends() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("workflow", "run:1").await;
    let fence = hold.fence().unwrap();
    fixture.faults.renew().down(true);
    fixture.advance(secs(31)).await;
    fixture.faults.renew().down(false);
    let other = b.hold("workflow", "run:1").await;
    let between = other.fence().unwrap();
    fixture.advance(secs(20)).await;
    other.release().await;
    fixture.advance(secs(6)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert!(fence < between && between < hold.fence().unwrap());
    assert_eq!((a.event_count("proven_again"), a.event_count("overlap_confirmed")), (1, 1));
}

/// The third failure does not stop the work either: the keeper goes on retrying.
#[tokio::test(start_paused = true)]
async fn repeated_failures_stop_neither_the_work_nor_the_retries() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("workflow", "run:1").await;
    fixture.faults.renew().down(true);
    fixture.advance(secs(300)).await;
    hold.check().unwrap();
    assert!(fixture.call_count(StoreOp::Renew) > 20);
    assert_eq!((a.event_count("unproven"), a.event_count("abandoned")), (1, 0));
    assert_eq!(a.event_count("renew_failed") as u64, fixture.call_count(StoreOp::Renew));
}

/// A release without proof still releases a lease that may be left.
#[tokio::test(start_paused = true)]
async fn an_unproven_hold_releases_a_lease_left_in_the_store() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", "[class.workflow]\nrelease = { lock_delay = \"60s\" }");
    let hold = a.hold("workflow", "run:1").await;
    fixture.faults.renew().down(true);
    fixture.advance(secs(40)).await;
    assert_eq!(hold.status(), HoldStatus::Unproven);
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!(fixture.live_lease("run:1").await, None);
    assert_eq!(a.event_count("overlap_ended"), 1);
}

/// Time without proof is measured once, over several outages.
#[tokio::test(start_paused = true)]
async fn overlap_adds_up_over_outages() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("workflow", "run:1").await;
    for _ in 0..5 {
        fixture.faults.renew().down(true);
        fixture.advance(secs(70)).await;
        fixture.faults.renew().down(false);
        fixture.advance(secs(30)).await;
        assert_eq!(hold.status(), HoldStatus::Proven);
    }
    let (mut open, mut truth) = (None, 0.0);
    for event in a.history.events() {
        match event.what {
            EventKind::Unproven => open = Some(event.at),
            EventKind::ProvenAgain { .. } => truth += event.at.since(open.take().unwrap()).as_secs_f64(),
            _ => {}
        }
    }
    assert_eq!((a.event_count("unproven"), a.event_count("proven_again")), (5, 5));
    assert!((a.metric_total("overlap_seconds_total", "") - truth).abs() < 0.01);
    assert!(truth > 5.0 * 30.0);
}
