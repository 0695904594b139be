//! Operator actions on a running client.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture::{Fixture, name, secs};
use leasehold_core::event::EventKind;
use leasehold_core::store::ReleaseResponse;
use leasehold_core::{BreakError, Error, Exclusivity, Loss};

#[tokio::test(start_paused = true)]
async fn a_broken_lease_is_free_at_once_and_its_holder_loses_it() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    let given = b.locks.break_lease(&name("job:1"), fence, "eve: the replica hangs").await;
    assert_eq!(given.unwrap(), ReleaseResponse::Released);
    let told = b.only_event("broken");
    assert_eq!((told.name, told.fence), (Some(name("job:1")), Some(fence)));
    assert!(matches!(told.what, EventKind::Broken { by } if by == "eve: the replica hangs"));
    // I2: the next grant's fence is greater.
    let next = b.hold("scheduler", "job:1").await;
    assert!(next.fence().unwrap() > fence);
    assert_eq!(fixture.wait_for_loss(&hold).await.reason, Loss::NotOwned);
    next.check().unwrap();
}

/// An operator with an outdated view must not break the next owner's lease.
#[tokio::test(start_paused = true)]
async fn break_lease_only_ends_the_grant_with_that_fence() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let seen = hold.fence().unwrap();
    hold.release().await;
    let next = a.hold("scheduler", "job:1").await;
    let given = b.locks.break_lease(&name("job:1"), seen, "too late").await;
    assert_eq!(given.unwrap(), ReleaseResponse::NotOwned);
    assert_eq!(b.event_count("broken"), 0);
    fixture.advance(secs(120)).await;
    next.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn break_lease_needs_a_reason_and_reports_unknown_outcomes() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let fence = hold.fence().unwrap();
    let refused = a.locks.break_lease(&name("job:1"), fence, "  ").await.unwrap_err();
    assert!(matches!(refused, BreakError::Invalid(_)) && refused.to_string().starts_with("reason "));
    fixture.faults.release().lose_reply(1);
    let unknown = a.locks.break_lease(&name("job:1"), fence, "eve: stuck").await;
    assert!(matches!(unknown, Err(BreakError::Store(failure)) if failure.unknown));
    assert_eq!(a.event_count("broken"), 0, "an unknown end is not told as an end");
}

#[tokio::test(start_paused = true)]
async fn a_cleared_override_is_reported_and_ends_at_once() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.acquire().down(true);
    let field = "acquire.on_error";
    a.set_policy("workflow", field, "fail-closed", "duplicates seen", secs(1800)).unwrap();
    assert!(matches!(a.expect_error("workflow", "run:1").await, Error::Unavailable { .. }));
    a.locks.clear_policy("workflow", field).unwrap();
    assert_eq!(a.event_count("policy_changed"), 2);
    assert_eq!(a.hold("workflow", "run:1").await.exclusivity(), Exclusivity::LocalOnly);
    assert!(a.locks.clear_policy("workflow", field).is_err(), "there is none any more");
}
