//! What an operator does to a running client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed::{Bed, name, secs};
use leasehold_core::event::What;
use leasehold_core::store::Given;
use leasehold_core::{BreakError, Error, Exclusivity, Loss};

#[tokio::test(start_paused = true)]
async fn a_broken_lease_is_free_at_once_and_its_holder_learns_of_it() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    let given = b
        .locks
        .break_lease(&name("job:1"), fence, "eve: the replica hangs")
        .await;
    assert_eq!(given.unwrap(), Given::Released);
    let told = b.only("broken");
    assert_eq!((told.name, told.fence), (Some(name("job:1")), Some(fence)));
    assert!(matches!(told.what, What::Broken { by } if by == "eve: the replica hangs"));
    // I2: the next grant's fence is greater.
    let next = b.hold("scheduler", "job:1").await;
    assert!(next.fence().unwrap() > fence);
    assert_eq!(bed.lost(&hold).await.reason, Loss::NotOwned);
    next.check().unwrap();
}

/// An operator who looked a moment too early must not hit the next owner.
#[tokio::test(start_paused = true)]
async fn only_the_grant_that_was_seen_is_broken() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let seen = hold.fence().unwrap();
    hold.release().await;
    let next = a.hold("scheduler", "job:1").await;
    let given = b.locks.break_lease(&name("job:1"), seen, "too late").await;
    assert_eq!(given.unwrap(), Given::NotOwned);
    assert_eq!(b.count("broken"), 0);
    bed.pass(secs(120)).await;
    next.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_break_needs_a_reason_and_an_answer() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    let refused = a
        .locks
        .break_lease(&name("job:1"), fence, "  ")
        .await
        .unwrap_err();
    assert!(matches!(refused, BreakError::Invalid(_)) && refused.to_string().starts_with("reason "));
    bed.chaos.release().lose_reply(1);
    let unknown = a.locks.break_lease(&name("job:1"), fence, "eve: stuck").await;
    assert!(matches!(unknown, Err(BreakError::Store(failure)) if failure.unknown));
    assert_eq!(a.count("broken"), 0, "an unknown end is not told as an end");
}

#[tokio::test(start_paused = true)]
async fn an_override_taken_back_is_told_and_counts_at_once() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.acquire().down(true);
    let field = "acquire.on_error";
    a.set_policy("workflow", field, "fail-closed", "duplicates seen", secs(1800))
        .unwrap();
    assert!(matches!(
        a.refused("workflow", "run:1").await,
        Error::Unavailable { .. }
    ));
    a.locks.clear_policy("workflow", field).unwrap();
    assert_eq!(a.count("policy_changed"), 2);
    assert_eq!(
        a.hold("workflow", "run:1").await.exclusivity(),
        Exclusivity::LocalOnly
    );
    assert!(
        a.locks.clear_policy("workflow", field).is_err(),
        "there is none any more"
    );
}
