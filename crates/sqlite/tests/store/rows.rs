//! Each statement touches only the rows of its name and owner, and only while they are live.

use std::time::Duration;

use leasehold_core::Fence;
use leasehold_core::store::{AcquireResponse, Grant, ReleaseRequest, Store};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};

#[tokio::test]
async fn tombstone_applies_to_one_name_and_expires() {
    let context = Fixture::new();
    let store = context.open();
    let here = TestClient::new("a", "job:1");
    let there = TestClient { name: TestClient::new("a", "job:2").name, ..here.clone() };
    let undo = ReleaseRequest::undo(here.name.clone(), here.token.clone());
    store.release(&undo, CALL_TIMEOUT).await.unwrap();
    there.expect_granted(&store).await;
    let answer = here.acquire(&store, &here.acquire_request(60_000)).await.unwrap();
    assert!(matches!(answer, AcquireResponse::Void), "{answer:?}");
    context.clock.advance(Duration::from_secs(61));
    here.expect_granted(&store).await;
}

#[tokio::test]
async fn repeated_undo_extends_the_tombstone() {
    let context = Fixture::new();
    let store = context.open();
    let who = TestClient::new("a", "job:1");
    let undo = ReleaseRequest::undo(who.name.clone(), who.token.clone());
    store.release(&undo, CALL_TIMEOUT).await.unwrap();
    context.clock.advance(Duration::from_secs(40));
    store.release(&undo, CALL_TIMEOUT).await.unwrap();
    context.clock.advance(Duration::from_secs(40));
    let answer = who.acquire(&store, &who.acquire_request(60_000)).await.unwrap();
    assert!(matches!(answer, AcquireResponse::Void), "{answer:?}");
}

/// The poll comes so late that the entry must be rewritten, and it carries a new floor.
#[tokio::test]
async fn polling_waiter_keeps_its_place_and_raises_its_floor() {
    let context = Fixture::new();
    let store = context.open();
    let [holder, first, second] = ["h", "first", "second"].map(|holder| TestClient::new(holder, "job:1"));
    let held = holder.acquire(&store, &holder.acquire_request(3_600_000)).await.unwrap();
    let AcquireResponse::Granted(Grant { fence, .. }) = held else {
        panic!("{held:?}");
    };
    first.expect_queued(&store).await;
    second.expect_queued(&store).await;
    context.clock.advance(Duration::from_secs(400));
    let floor = Fence::new(fence.get() + 3_600_000_000).unwrap();
    let again = first.queue_request().with_floor(floor);
    first.acquire(&store, &again).await.unwrap();
    holder.release(&store).await;
    let lease = first.inspect(&store).await.unwrap();
    assert_eq!(lease.holder, "first");
    assert!(lease.fence > Some(floor), "{lease:?}");
}

#[tokio::test]
async fn waiters_are_counted_by_name_and_while_they_wait() {
    let context = Fixture::new();
    let store = context.open();
    let who = |holder: &str, name: &str| TestClient::new(holder, name);
    for name in ["job:1", "job:2"] {
        who("h", name).expect_granted(&store).await;
        who("w", name).expect_queued(&store).await;
    }
    let brief = who("b", "job:1");
    let request = brief.acquire_request(60_000).with_queue(Duration::from_secs(1));
    brief.acquire(&store, &request).await.unwrap();
    let waiters = async || brief.inspect(&store).await.unwrap().waiters;
    assert_eq!(waiters().await, Some(2));
    context.clock.advance(Duration::from_secs(2));
    assert_eq!(waiters().await, Some(1));
}

#[tokio::test]
async fn release_hands_over_to_a_waiter_of_that_name() {
    let context = Fixture::new();
    let store = context.open();
    let there = TestClient::new("h", "job:2");
    there.expect_granted(&store).await;
    let early = TestClient::new("early", "job:2");
    early.expect_queued(&store).await;
    let here = TestClient::new("h", "job:1");
    here.expect_granted(&store).await;
    // A waiter for one name is not in the queue of another name.
    let late = TestClient { name: here.name.clone(), ..early.clone() };
    late.expect_queued(&store).await;
    assert_eq!(context.count("waiters"), 2);
    TestClient::new("last", "job:1").expect_queued(&store).await;
    assert_eq!(context.count("waiters"), 3);
    here.release(&store).await;
    assert_eq!(here.inspect(&store).await.unwrap().holder, "early");
    assert_eq!(there.inspect(&store).await.unwrap().waiters, Some(1));
}

#[tokio::test]
async fn waiter_of_another_name_is_not_handed_this_name() {
    let context = Fixture::new();
    let store = context.open();
    let [here, there] = ["job:1", "job:2"].map(|name| TestClient::new("h", name));
    here.expect_granted(&store).await;
    there.expect_granted(&store).await;
    TestClient::new("early", "job:2").expect_queued(&store).await;
    TestClient::new("late", "job:1").expect_queued(&store).await;
    here.release(&store).await;
    assert_eq!(here.inspect(&store).await.unwrap().holder, "late");
}

/// The wall-clock columns follow the boot-clock ones.
#[tokio::test]
async fn renewal_updates_the_wall_clock_columns() {
    let context = Fixture::new();
    let store = context.open();
    let who = TestClient::new("a", "job:1");
    let fence = who.expect_granted(&store).await;
    let shown = || -> i64 {
        let sql = "SELECT expires_unix_ms FROM leases";
        context.raw_connection().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let before = shown();
    context.clock.advance(Duration::from_secs(30));
    who.renew(&store, fence).await;
    assert_eq!(shown(), before + 30_000);
}

/// If hundreds of waiters wrote with every poll, the next holder could not reach the file.
#[tokio::test]
async fn early_poll_of_a_waiter_only_reads() {
    let context = Fixture::new();
    let store = context.open();
    TestClient::new("h", "job:1").expect_granted(&store).await;
    let waiter = TestClient::new("w", "job:1");
    waiter.expect_queued(&store).await;
    let busy = context.raw_connection();
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    waiter.expect_queued(&store).await;
}

#[tokio::test]
async fn waiter_with_an_expired_entry_requeues_at_the_end() {
    let context = Fixture::new();
    let store = context.open();
    let [holder, late, second] = ["h", "late", "second"].map(|holder| TestClient::new(holder, "job:1"));
    holder.acquire(&store, &holder.acquire_request(3_600_000)).await.unwrap();
    late.expect_queued(&store).await;
    context.clock.advance(Duration::from_secs(601));
    second.expect_queued(&store).await;
    late.expect_queued(&store).await;
    holder.release(&store).await;
    assert_eq!(holder.inspect(&store).await.unwrap().holder, "second");
    second.release(&store).await;
    assert_eq!(holder.inspect(&store).await.unwrap().holder, "late");
}

#[tokio::test]
async fn leaving_one_queue_keeps_the_place_in_another() {
    let context = Fixture::new();
    let store = context.open();
    let [here, there] = ["job:1", "job:2"].map(|name| TestClient::new("h", name));
    here.expect_granted(&store).await;
    there.expect_granted(&store).await;
    let waits_here = TestClient::new("w", "job:1");
    let waits_there = TestClient { name: there.name.clone(), ..waits_here.clone() };
    waits_here.expect_queued(&store).await;
    waits_there.expect_queued(&store).await;
    waits_here.release(&store).await;
    assert_eq!(here.inspect(&store).await.unwrap().waiters, Some(0));
    there.release(&store).await;
    assert_eq!(there.inspect(&store).await.unwrap().holder, "w");
}
