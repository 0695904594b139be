//! Leases belong to one boot and its clock; the wall clock is for people.

use std::time::Duration;

use leasehold_core::store::{
    AcquireResponse, ReleaseRequest, ReleaseResponse, RenewResponse, Store, StoreErrorKind,
};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};

#[tokio::test]
async fn another_boot_voids_leases_waiters_and_tombstones_but_not_fences() {
    let context = Fixture::new();
    let (a, b, undone) =
        (TestClient::new("a", "job"), TestClient::new("b", "job"), TestClient::new("u", "job"));
    let store = context.open();
    let before = a.expect_granted(&store).await;
    b.expect_queued(&store).await;
    let undo = ReleaseRequest::undo(undone.name.clone(), undone.token.clone());
    store.release(&undo, CALL_TIMEOUT).await.unwrap();
    let late = undone.acquire(&store, &undone.acquire_request(60_000)).await.unwrap();
    assert_eq!(late, AcquireResponse::Void, "the tombstone works within the boot");
    drop(store);

    // The new boot's clock is far before the lease's expiry. That must not keep the lease alive.
    context.clock.reboot();
    let store = SqliteStore::open(context.options().boot_id("boot-2")).unwrap();
    assert_eq!(b.inspect(&store).await, None);
    for table in ["leases", "waiters", "tombstones"] {
        assert_eq!(context.count(table), 0, "{table}");
    }
    // The fence must not go back even if the wall clock was set back in between.
    context.clock.step_wall(-86_400_000);
    assert!(undone.expect_granted(&store).await > before);
    assert_eq!(a.renew(&store, before).await, RenewResponse::NotOwned);
}

#[tokio::test]
async fn the_same_boot_keeps_everything_across_reopening() {
    let context = Fixture::new();
    let a = TestClient::new("a", "job");
    let fence = a.expect_granted(&context.open()).await;
    let store = context.open();
    assert_eq!(a.inspect(&store).await.unwrap().fence, Some(fence));
    assert!(matches!(a.renew(&store, fence).await, RenewResponse::Extended { .. }));
}

#[tokio::test]
async fn file_adopted_by_another_host_is_refused() {
    let context = Fixture::new();
    let a = TestClient::new("a", "job");
    let here = context.open();
    a.expect_granted(&here).await;
    let there = SqliteStore::open(context.options().boot_id("another-host")).unwrap();
    let failure = here.acquire(&a.acquire_request(60_000), CALL_TIMEOUT).await.unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Misconfigured, false));
    assert!(failure.message().contains("one host only"), "{failure}");
    assert!(here.inspect(&a.name, CALL_TIMEOUT).await.is_err());
    TestClient::new("b", "job").expect_granted(&there).await;
}

#[tokio::test]
async fn trap_23_wall_clock_stepped_an_hour_either_way() {
    for step in [3_600_000, -3_600_000] {
        let context = Fixture::new();
        let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
        let store = context.open();
        let fence = a.expect_granted(&store).await;
        context.clock.step_wall(step);
        // The remaining time must not change at all.
        let left = a.inspect(&store).await.unwrap().remaining.unwrap();
        assert_eq!(left, Duration::from_secs(60), "step {step}");
        assert!(matches!(
            b.acquire(&store, &b.acquire_request(60_000)).await.unwrap(),
            AcquireResponse::Busy(_)
        ));
        let renewed = a.renew(&store, fence).await;
        let was_left = Some(Duration::from_secs(60));
        assert_eq!(renewed, RenewResponse::extended(was_left), "step {step}");
        context.clock.advance(Duration::from_secs(60));
        assert_eq!(a.inspect(&store).await, None, "step {step}");
        assert!(b.expect_granted(&store).await > fence, "step {step}");
        assert_eq!(a.release(&store).await, ReleaseResponse::NotOwned, "step {step}");
    }
}

#[tokio::test]
async fn the_real_boot_id_is_read_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).unwrap();
    TestClient::new("a", "job").expect_granted(&store).await;
    let kept: String = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT value FROM meta WHERE key = 'boot'", [], |row| row.get(0))
        .unwrap();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(kept, kernel.trim());
}
