//! Every built-in class acts as its policy says when an acquire, a renewal or a release fails; with
//! the opposite policy it acts the opposite way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::fixture::{Client, Fixture, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::policy::{OnError, OnFailure, ReleaseWhen};
use leasehold_core::{Acquired, Error, Exclusivity, HoldStatus, Loss, ReleaseOutcome};

/// The promises of the articles' table, one row per class.
struct FailureRow {
    class: &'static str,
    on_error: OnError,
    retry_after: u64,
    on_failure: OnFailure,
    /// The number of renewal attempts before the hold ends, and the reason of the loss.
    renewals_and_loss: (u64, Loss),
    /// The number of release attempts before the caller continues.
    release_attempts: u64,
    when: ReleaseWhen,
}

#[rustfmt::skip]
const FAILURE_ROWS: [FailureRow; 7] = {
    use OnError::{FailClosed, FailOpen};
    use OnFailure::{Continue, Fence};
    use ReleaseWhen::{Expired, Finished};
    const THREE_FAILURES: (u64, Loss) = (3, Loss::MaxFailures);
    [
        FailureRow { class: "admission", on_error: FailClosed, retry_after: 1, on_failure: Fence, renewals_and_loss: (0, Loss::Deadline), release_attempts: 1, when: Finished },
        FailureRow { class: "approval", on_error: FailClosed, retry_after: 1, on_failure: Fence, renewals_and_loss: THREE_FAILURES, release_attempts: 1, when: Finished },
        FailureRow { class: "reconciler", on_error: FailClosed, retry_after: 30, on_failure: Fence, renewals_and_loss: THREE_FAILURES, release_attempts: 0, when: Expired },
        FailureRow { class: "replayer", on_error: FailClosed, retry_after: 30, on_failure: Fence, renewals_and_loss: THREE_FAILURES, release_attempts: 0, when: Expired },
        FailureRow { class: "scheduler", on_error: FailClosed, retry_after: 1, on_failure: Fence, renewals_and_loss: THREE_FAILURES, release_attempts: 2, when: Finished },
        FailureRow { class: "workflow", on_error: FailOpen, retry_after: 1, on_failure: Continue, renewals_and_loss: THREE_FAILURES, release_attempts: 2, when: Finished },
        FailureRow { class: "workflow-critical", on_error: FailClosed, retry_after: 1, on_failure: Fence, renewals_and_loss: THREE_FAILURES, release_attempts: 2, when: Finished },
    ]
};

fn set_override(client: &Client, class: &str, field: &str, value: &str) {
    let change = client.set_policy(class, field, value, "the test wants the other one", secs(36_000));
    change.expect("the override");
}

#[tokio::test(start_paused = true)]
async fn the_table_has_every_class() {
    let fixture = Fixture::new();
    let classes = fixture.client("a").policies().classes();
    let rows: Vec<_> = FAILURE_ROWS.iter().map(|row| row.class).collect();
    assert_eq!(classes.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), rows);
}

async fn check_acquire_failure(fixture: &Fixture, client: &Client, row: &FailureRow, on_error: OnError) {
    fixture.faults.acquire().down(true);
    let (before, name) = (client.metric_total("fallback_total", ""), format!("acquire:{}", row.class));
    let answer = client.class(row.class).acquire(&name).await;
    let moved = client.metric_total("fallback_total", "") - before;
    match (on_error, answer) {
        (OnError::FailClosed, Err(Error::Unavailable { retry_after, .. })) => {
            assert_eq!((retry_after, moved), (secs(row.retry_after), 0.0), "{}", row.class);
        }
        (OnError::FailOpen, Ok(Acquired::Held(hold))) => {
            assert_eq!((hold.exclusivity(), moved), (Exclusivity::LocalOnly, 1.0), "{}", row.class);
        }
        (wanted, other) => panic!("{}: {wanted:?}: {other:?}", row.class),
    }
    fixture.faults.acquire().down(false);
    // Gives the breaker time to detect the recovery.
    fixture.advance(secs(10)).await;
}

async fn check_renewal_failure(fixture: &Fixture, client: &Client, row: &FailureRow, on_failure: OnFailure) {
    let (before, name) = (client.event_count("abandoned"), format!("renew:{}", row.class));
    let hold = client.hold(row.class, &name).await;
    let ttl = client.policies().class(row.class, fixture.now()).unwrap().ttl.get();
    let (from, calls) = (fixture.now(), fixture.call_count(StoreOp::Renew));
    fixture.faults.renew().down(true);
    match on_failure {
        OnFailure::Fence => {
            let lost = fixture.wait_for_loss(&hold).await;
            run_ready_tasks().await;
            let tried = fixture.call_count(StoreOp::Renew) - calls;
            assert_eq!((tried, lost.reason), row.renewals_and_loss, "{}", row.class);
            assert!(fixture.now().since(from) < ttl, "{}", row.class);
            assert_eq!(client.event_count("abandoned") - before, 1, "{}", row.class);
            let given = fixture.call_count(StoreOp::Release);
            assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
            assert_eq!(fixture.call_count(StoreOp::Release), given, "{}", row.class);
        }
        OnFailure::Continue => {
            fixture.advance(ttl + secs(10)).await;
            hold.check().unwrap();
            assert_eq!(hold.status(), HoldStatus::Unproven, "{}", row.class);
            assert!(!hold.cancellation().is_cancelled());
            assert_eq!(client.event_count("abandoned") - before, 0, "{}", row.class);
            drop(hold);
        }
    }
    fixture.faults.renew().down(false);
    fixture.advance(ttl + Duration::from_secs(10)).await;
}

async fn check_release_failure(fixture: &Fixture, client: &Client, row: &FailureRow) {
    let name = format!("release:{}", row.class);
    let hold = client.hold(row.class, &name).await;
    fixture.faults.release().down(true);
    let before = fixture.call_count(StoreOp::Release);
    let outcome = hold.release().await;
    assert_eq!(fixture.call_count(StoreOp::Release) - before, row.release_attempts, "{}", row.class);
    match row.when {
        ReleaseWhen::Finished => {
            assert!(matches!(outcome, ReleaseOutcome::Debt { .. }), "{}: {outcome:?}", row.class)
        }
        ReleaseWhen::Expired => {
            assert!(matches!(outcome, ReleaseOutcome::Kept { .. }), "{}: {outcome:?}", row.class)
        }
    }
    // The caller continues at once; the name is free when the store is back, or after the TTL.
    fixture.faults.release().down(false);
    client.wait_until_idle().await;
    if row.when == ReleaseWhen::Finished {
        assert_eq!(fixture.live_lease(&name).await, None, "{}", row.class);
    } else {
        assert!(fixture.live_lease(&name).await.is_some(), "{}", row.class);
    }
    fixture.advance(secs(61)).await;
    assert_eq!(fixture.live_lease(&name).await, None, "{}", row.class);
}

#[tokio::test(start_paused = true)]
async fn acquire_failures_follow_each_class_and_its_opposite() {
    for row in &FAILURE_ROWS {
        let (fixture, opposite) = (Fixture::new(), Fixture::new());
        check_acquire_failure(&fixture, &fixture.client("a"), row, row.on_error).await;
        let client = opposite.client("a");
        let (other, word) = match row.on_error {
            OnError::FailClosed => (OnError::FailOpen, "fail-open"),
            OnError::FailOpen => (OnError::FailClosed, "fail-closed"),
        };
        set_override(&client, row.class, "acquire.on_error", word);
        check_acquire_failure(&opposite, &client, row, other).await;
    }
}

#[tokio::test(start_paused = true)]
async fn renewal_failures_follow_each_class_and_its_opposite() {
    for row in &FAILURE_ROWS {
        let (fixture, opposite) = (Fixture::new(), Fixture::new());
        check_renewal_failure(&fixture, &fixture.client("a"), row, row.on_failure).await;
        let client = opposite.client("a");
        let (other, word) = match row.on_failure {
            OnFailure::Fence => (OnFailure::Continue, "continue"),
            OnFailure::Continue => (OnFailure::Fence, "fence"),
        };
        set_override(&client, row.class, "renew.on_failure", word);
        check_renewal_failure(&opposite, &client, row, other).await;
    }
}

#[tokio::test(start_paused = true)]
async fn release_failures_follow_each_class_and_its_opposite() {
    for row in &FAILURE_ROWS {
        let (fixture, opposite) = (Fixture::new(), Fixture::new());
        check_release_failure(&fixture, &fixture.client("a"), row).await;
        let client = opposite.client("a");
        let (when, word, attempts) = match row.when {
            ReleaseWhen::Finished => (ReleaseWhen::Expired, "expired", 0),
            ReleaseWhen::Expired => (ReleaseWhen::Finished, "finished", 1),
        };
        set_override(&client, row.class, "release.when", word);
        let other = FailureRow { when, release_attempts: attempts, ..*row };
        check_release_failure(&opposite, &client, &other).await;
    }
}
