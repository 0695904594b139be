//! Late acquire requests. If an acquire succeeds on its second attempt, the first request may still
//! arrive. If the hold then ends without a release, a late grant would have no owner and block the
//! name for a whole TTL. The client undoes it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture::{Client, Fixture, ms, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::store::{AcquireRequest, AcquireResponse};
use leasehold_core::{Hold, PendingWork, ReleaseOutcome, Ttl};

/// Holds the lock after two requests with one token; the first request has not arrived yet.
async fn hold_with_late_request(fixture: &Fixture, a: &Client, class: &str) -> Hold {
    fixture.faults.acquire().vanish_next(1);
    let hold = a.hold(class, "job:1").await;
    assert_eq!(fixture.call_count(StoreOp::Acquire), 2);
    hold
}

/// Delivers the first request.
async fn deliver_late_request(fixture: &Fixture) -> AcquireResponse {
    let late = fixture.recorder.acquires().remove(0);
    let ask = AcquireRequest::new(late.name, late.token, Ttl::new(secs(30)).unwrap());
    fixture.recorder.store().acquire(&ask, secs(1)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_late_request_after_an_abandoned_lease_is_refused() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = hold_with_late_request(&fixture, &a, "workflow-critical").await;
    fixture.faults.renew().down(true);
    fixture.wait_for_loss(&hold).await;
    assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
    run_ready_tasks().await;
    // The lease is not released while it is still valid.
    let mut later = PendingWork::default();
    later.deferred_undos = 1;
    assert_eq!(a.pending().await, later);
    assert!(fixture.live_lease("job:1").await.is_some());
    while fixture.live_lease("job:1").await.is_some() {
        assert_eq!(fixture.call_count(StoreOp::Release), 0);
        fixture.advance(ms(100)).await;
    }
    a.wait_until_idle().await;
    assert_eq!((fixture.call_count(StoreOp::Release), a.event_count("undone")), (1, 1));
    assert_eq!(deliver_late_request(&fixture).await, AcquireResponse::Void);
    assert_eq!(fixture.live_lease("job:1").await, None);
}

/// If the request arrives before the undo, the undo ends its lease.
#[tokio::test(start_paused = true)]
async fn a_late_grant_before_the_undo_is_ended_by_it() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = hold_with_late_request(&fixture, &a, "workflow-critical").await;
    fixture.faults.all().down(true);
    fixture.wait_for_loss(&hold).await;
    hold.release().await;
    fixture.advance(secs(30)).await;
    fixture.faults.acquire().clear();
    assert!(matches!(deliver_late_request(&fixture).await, AcquireResponse::Granted(_)));
    assert!(fixture.live_lease("job:1").await.is_some(), "to nobody");
    fixture.faults.all().down(false);
    a.wait_until_idle().await;
    assert_eq!(fixture.live_lease("job:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_late_request_after_a_kept_lease_is_refused() {
    const WINDOW_POLICY: &str = r#"
[class.window]
ttl = "10s"
release = { when = "expired" }
"#;
    let fixture = Fixture::new();
    let a = fixture.client_with("a", WINDOW_POLICY);
    let hold = hold_with_late_request(&fixture, &a, "window").await;
    assert!(matches!(hold.release().await, ReleaseOutcome::Kept { .. }));
    fixture.advance(secs(9)).await;
    assert!(fixture.live_lease("job:1").await.is_some(), "the window is not over");
    a.wait_until_idle().await;
    assert_eq!(deliver_late_request(&fixture).await, AcquireResponse::Void);
    assert_eq!(fixture.live_lease("job:1").await, None);
}

/// A shutdown does not wait for the expiry of a lease that will not be released.
#[tokio::test(start_paused = true)]
async fn shutdown_reports_deferred_undos_without_waiting_for_them() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = hold_with_late_request(&fixture, &a, "workflow-critical").await;
    fixture.faults.renew().down(true);
    fixture.wait_for_loss(&hold).await;
    hold.release().await;
    let from = fixture.now();
    let ended = a.locks.shutdown(secs(5)).await;
    assert!(fixture.now().since(from) < secs(1), "{:?}", fixture.now().since(from));
    assert_eq!((ended.fenced, ended.pending.deferred_undos), (0, 1));
    // The undo still happens as long as the process lives.
    a.wait_until_idle().await;
    assert_eq!(deliver_late_request(&fixture).await, AcquireResponse::Void);
}
