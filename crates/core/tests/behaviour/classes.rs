//! Every built-in class does what its policy says when acquire errs, when renewal fails and when release fails; and
//! the other policy of each leg does the other thing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use crate::bed::{Bed, Client, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::policy::{OnError, OnFailure, ReleaseWhen};
use leasehold_core::{Acquired, Error, Exclusivity, Loss, Outcome, Standing};

/// What the articles' table promises, one row a class.
struct Row {
    class: &'static str,
    on_error: OnError,
    retry_after: u64,
    on_failure: OnFailure,
    /// How many renewals are tried before it is over, and why it is then.
    ends: (u64, Loss),
    /// How many releases are tried before the foreground goes on.
    attempts: u64,
    when: ReleaseWhen,
}

#[rustfmt::skip]
const TABLE: [Row; 7] = {
    use OnError::{FailClosed, FailOpen};
    use OnFailure::{Continue, Fence};
    use ReleaseWhen::{Expired, Finished};
    const THREE: (u64, Loss) = (3, Loss::MaxFailures);
    [
        Row { class: "admission", on_error: FailClosed, retry_after: 1, on_failure: Fence, ends: (0, Loss::Deadline), attempts: 1, when: Finished },
        Row { class: "approval", on_error: FailClosed, retry_after: 1, on_failure: Fence, ends: THREE, attempts: 1, when: Finished },
        Row { class: "reconciler", on_error: FailClosed, retry_after: 30, on_failure: Fence, ends: THREE, attempts: 0, when: Expired },
        Row { class: "replayer", on_error: FailClosed, retry_after: 30, on_failure: Fence, ends: THREE, attempts: 0, when: Expired },
        Row { class: "scheduler", on_error: FailClosed, retry_after: 1, on_failure: Fence, ends: THREE, attempts: 2, when: Finished },
        Row { class: "workflow", on_error: FailOpen, retry_after: 1, on_failure: Continue, ends: THREE, attempts: 2, when: Finished },
        Row { class: "workflow-critical", on_error: FailClosed, retry_after: 1, on_failure: Fence, ends: THREE, attempts: 2, when: Finished },
    ]
};

fn override_with(client: &Client, class: &str, field: &str, value: &str) {
    let change = client.set_policy(class, field, value, "the test wants the other one", secs(36_000));
    change.expect("the override");
}

#[tokio::test(start_paused = true)]
async fn the_table_has_every_class() {
    let bed = Bed::new();
    let classes = bed.client("a").policies().classes();
    let rows: Vec<_> = TABLE.iter().map(|row| row.class).collect();
    assert_eq!(classes.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), rows);
}

async fn acquire_fails(bed: &Bed, client: &Client, row: &Row, on_error: OnError) {
    bed.chaos.acquire().down(true);
    let (before, name) = (
        client.total("fallback_total", ""),
        format!("acquire:{}", row.class),
    );
    let answer = client.class(row.class).acquire(&name).await;
    let moved = client.total("fallback_total", "") - before;
    match (on_error, answer) {
        (OnError::FailClosed, Err(Error::Unavailable { retry_after, .. })) => {
            assert_eq!(
                (retry_after, moved),
                (secs(row.retry_after), 0.0),
                "{}",
                row.class
            );
        }
        (OnError::FailOpen, Ok(Acquired::Held(hold))) => {
            assert_eq!(
                (hold.exclusivity(), moved),
                (Exclusivity::LocalOnly, 1.0),
                "{}",
                row.class
            );
        }
        (wanted, other) => panic!("{}: {wanted:?}: {other:?}", row.class),
    }
    bed.chaos.acquire().down(false);
    // Let the breaker find that it is back.
    bed.pass(secs(10)).await;
}

async fn renewal_fails(bed: &Bed, client: &Client, row: &Row, on_failure: OnFailure) {
    let (before, name) = (client.count("abandoned"), format!("renew:{}", row.class));
    let hold = client.hold(row.class, &name).await;
    let ttl = client.policies().class(row.class, bed.now()).unwrap().ttl.get();
    let (from, calls) = (bed.now(), bed.calls(Verb::Renew));
    bed.chaos.renew().down(true);
    match on_failure {
        OnFailure::Fence => {
            let lost = bed.lost(&hold).await;
            settle().await;
            let tried = bed.calls(Verb::Renew) - calls;
            assert_eq!((tried, lost.reason), row.ends, "{}", row.class);
            assert!(bed.now().since(from) < ttl, "{}", row.class);
            assert_eq!(client.count("abandoned") - before, 1, "{}", row.class);
            let given = bed.calls(Verb::Release);
            assert_eq!(hold.release().await, Outcome::Skipped);
            assert_eq!(bed.calls(Verb::Release), given, "{}", row.class);
        }
        OnFailure::Continue => {
            bed.pass(ttl + secs(10)).await;
            hold.check().unwrap();
            assert_eq!(hold.standing(), Standing::Unproven, "{}", row.class);
            assert!(!hold.cancellation().is_cancelled());
            assert_eq!(client.count("abandoned") - before, 0, "{}", row.class);
            drop(hold);
        }
    }
    bed.chaos.renew().down(false);
    bed.pass(ttl + Duration::from_secs(10)).await;
}

async fn release_fails(bed: &Bed, client: &Client, row: &Row) {
    let name = format!("release:{}", row.class);
    let hold = client.hold(row.class, &name).await;
    bed.chaos.release().down(true);
    let before = bed.calls(Verb::Release);
    let outcome = hold.release().await;
    assert_eq!(bed.calls(Verb::Release) - before, row.attempts, "{}", row.class);
    match row.when {
        ReleaseWhen::Finished => assert!(
            matches!(outcome, Outcome::Debt { .. }),
            "{}: {outcome:?}",
            row.class
        ),
        ReleaseWhen::Expired => assert!(
            matches!(outcome, Outcome::Kept { .. }),
            "{}: {outcome:?}",
            row.class
        ),
    }
    // The work's process goes on at once; the name is free when the store is back, or by the TTL.
    bed.chaos.release().down(false);
    client.idle().await;
    if row.when == ReleaseWhen::Finished {
        assert_eq!(bed.lease(&name).await, None, "{}", row.class);
    } else {
        assert!(bed.lease(&name).await.is_some(), "{}", row.class);
    }
    bed.pass(secs(61)).await;
    assert_eq!(bed.lease(&name).await, None, "{}", row.class);
}

#[tokio::test(start_paused = true)]
async fn acquire_failure_is_answered_as_each_class_says_and_as_its_opposite_says() {
    for row in &TABLE {
        let (bed, opposite) = (Bed::new(), Bed::new());
        acquire_fails(&bed, &bed.client("a"), row, row.on_error).await;
        let client = opposite.client("a");
        let (other, word) = match row.on_error {
            OnError::FailClosed => (OnError::FailOpen, "fail-open"),
            OnError::FailOpen => (OnError::FailClosed, "fail-closed"),
        };
        override_with(&client, row.class, "acquire.on_error", word);
        acquire_fails(&opposite, &client, row, other).await;
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_renewal_failure_is_handled_as_each_class_says_and_as_its_opposite_says() {
    for row in &TABLE {
        let (bed, opposite) = (Bed::new(), Bed::new());
        renewal_fails(&bed, &bed.client("a"), row, row.on_failure).await;
        let client = opposite.client("a");
        let (other, word) = match row.on_failure {
            OnFailure::Fence => (OnFailure::Continue, "continue"),
            OnFailure::Continue => (OnFailure::Fence, "fence"),
        };
        override_with(&client, row.class, "renew.on_failure", word);
        renewal_fails(&opposite, &client, row, other).await;
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_release_failure_is_handled_as_each_class_says_and_as_its_opposite_says() {
    for row in &TABLE {
        let (bed, opposite) = (Bed::new(), Bed::new());
        release_fails(&bed, &bed.client("a"), row).await;
        let client = opposite.client("a");
        let (when, word, attempts) = match row.when {
            ReleaseWhen::Finished => (ReleaseWhen::Expired, "expired", 0),
            ReleaseWhen::Expired => (ReleaseWhen::Finished, "finished", 1),
        };
        override_with(&client, row.class, "release.when", word);
        let other = Row {
            when,
            attempts,
            ..*row
        };
        release_fails(&opposite, &client, &other).await;
    }
}
