//! Expired rows are removed, and live ones never.

use std::time::Duration;

use leasehold_core::store::{ReleaseRequest, Store};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient, await_event};

#[tokio::test]
async fn expired_rows_are_purged_step_by_step() {
    let context = Fixture::new();
    let store = context.open();
    // All clients crash: their leases, waiters and tombstones stay behind.
    for number in 0..200 {
        let (holder, waiter) =
            (TestClient::new("h", &format!("job:{number}")), TestClient::new("w", &format!("job:{number}")));
        holder.expect_granted(&store).await;
        waiter.expect_queued(&store).await;
        let undone = TestClient::new("u", &format!("job:{number}"));
        store.release(&ReleaseRequest::undo(undone.name, undone.token), CALL_TIMEOUT).await.unwrap();
    }
    let all = ["leases", "waiters", "tombstones"].map(|table| context.count(table));
    assert_eq!(all, [200; 3]);
    context.clock.advance(Duration::from_secs(601));

    // Other clients continue, and their steps purge.
    let who = TestClient::new("a", "other");
    for _ in 0..120 {
        who.expect_granted(&store).await;
        who.release(&store).await;
    }
    let left = ["leases", "waiters", "tombstones"].map(|table| context.count(table));
    assert_eq!(left, [0; 3]);
}

/// A purge checks 64 rows of each table, and the first step of a process runs one.
#[tokio::test]
async fn a_step_removes_a_bounded_number_of_rows() {
    let context = Fixture::new();
    let store = context.open();
    for number in 0..200 {
        TestClient::new("h", &format!("job:{number}")).expect_granted(&store).await;
    }
    context.clock.advance(Duration::from_secs(61));
    TestClient::new("a", "other").expect_granted(&context.open()).await;
    assert_eq!(context.count("leases"), 200 - 64 + 1);
}

/// The next purge starts after the rows that the last one has checked.
#[tokio::test]
async fn purge_continues_where_the_last_one_stopped() {
    let context = Fixture::new();
    let store = context.open();
    for number in 0..200 {
        let who = TestClient::new("h", &format!("job:{number:03}"));
        let ttl = if number < 64 { 120_000 } else { 60_000 };
        who.acquire(&store, &who.acquire_request(ttl)).await.unwrap();
    }
    let from_the_start = "DELETE FROM meta WHERE key = 'cleaned_up_to'";
    context.raw_connection().execute(from_the_start, []).unwrap();
    context.clock.advance(Duration::from_secs(61));
    TestClient::new("a", "other").expect_granted(&context.open()).await;
    assert_eq!(context.count("leases"), 201, "the first 64 are alive");
    context.clock.advance(Duration::from_secs(60));
    TestClient::new("b", "yet-another").expect_granted(&context.open()).await;
    assert_eq!(context.count("leases"), 202 - 64);
}

#[tokio::test]
async fn trap_25_clean_up_never_removes_what_is_alive() {
    let context = Fixture::new();
    let store = context.open();
    let alive: Vec<_> = (0..100).map(|number| TestClient::new("h", &format!("alive:{number}"))).collect();
    for who in &alive {
        who.expect_granted(&store).await;
    }
    // One millisecond before the leases expire.
    context.clock.advance(Duration::from_millis(59_999));
    let who = TestClient::new("a", "other");
    for _ in 0..80 {
        who.expect_granted(&store).await;
        who.release(&store).await;
    }
    for who in &alive {
        assert!(who.inspect(&store).await.is_some(), "{:?}", who.name);
    }
}

#[tokio::test]
async fn short_lived_processes_clean_up_too() {
    let context = Fixture::new();
    for number in 0..20 {
        TestClient::new("h", &format!("job:{number}")).expect_granted(&context.open()).await;
        context.clock.advance(Duration::from_secs(61));
    }
    assert!(context.count("leases") <= 2, "{}", context.count("leases"));
}

/// Truncating the log happens under the write lock and may wait for the filesystem. So it must not
/// happen each time that many writers make the log a little longer than usual.
#[tokio::test]
async fn the_log_is_cut_off_after_a_burst_and_not_before() {
    let context = Fixture::new();
    let store = context.open();
    let log = context.path().with_file_name("locks.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    // The log header's checkpoint sequence number: it grows by one whenever the log restarts.
    let rounds = || u32::from_be_bytes(std::fs::read(&log).unwrap()[12..16].try_into().unwrap());
    let other = context.raw_connection();
    other.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    other.execute_batch("CREATE TABLE ballast (x)").unwrap();
    for (megabytes, left) in [(24_u32, 24), (96, 64)] {
        let round = rounds();
        let bytes = megabytes << 20;
        other.execute("INSERT INTO ballast VALUES (zeroblob(?1))", [bytes]).unwrap();
        assert!(length() > u64::from(bytes), "{} is not a long log", length());
        await_event("a new round of the log", async {
            while rounds() == round {
                let who = TestClient::new("a", "job");
                who.expect_granted(&store).await;
                who.release(&store).await;
            }
        })
        .await;
        assert_eq!(length() >> 20, left, "after {megabytes} MiB");
    }
}
