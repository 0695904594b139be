//! Leases belong to a boot and to its clock; the wall clock is for people.

use std::time::Duration;

use leasehold_core::store::{Answer, Cause, Given, Giving, Renewed, Store};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::scene::{Scene, WITHIN, Who};

#[tokio::test]
async fn another_boot_voids_leases_waiters_and_tombstones_but_not_fences() {
    let scene = Scene::new();
    let (a, b, undone) = (Who::new("a", "job"), Who::new("b", "job"), Who::new("u", "job"));
    let store = scene.open();
    let before = a.gets(&store).await;
    b.queues(&store).await;
    let undo = Giving::undo(undone.name.clone(), undone.token.clone());
    store.release(&undo, WITHIN).await.unwrap();
    let late = undone.put(&store, &undone.ask(60_000)).await.unwrap();
    assert_eq!(late, Answer::Void, "the tombstone works within the boot");
    drop(store);

    // The new boot's clock is far behind the lease's expiry, which must not keep the lease alive.
    scene.clock.reboot();
    let store = SqliteStore::open(scene.options().boot_id("boot-2")).unwrap();
    assert_eq!(b.sees(&store).await, None);
    for table in ["leases", "waiters", "tombstones"] {
        assert_eq!(scene.count(table), 0, "{table}");
    }
    // Even a wall clock that was set back in between does not make the fence go back.
    scene.clock.step_wall(-86_400_000);
    assert!(undone.gets(&store).await > before);
    assert_eq!(a.renews(&store, before).await, Renewed::NotOwned);
}

#[tokio::test]
async fn the_same_boot_keeps_everything_across_reopening() {
    let scene = Scene::new();
    let a = Who::new("a", "job");
    let fence = a.gets(&scene.open()).await;
    let store = scene.open();
    assert_eq!(a.sees(&store).await.unwrap().fence, Some(fence));
    assert!(matches!(a.renews(&store, fence).await, Renewed::Extended { .. }));
}

#[tokio::test]
async fn a_file_taken_over_by_another_host_is_refused_not_guessed_at() {
    let scene = Scene::new();
    let a = Who::new("a", "job");
    let here = scene.open();
    a.gets(&here).await;
    let there = SqliteStore::open(scene.options().boot_id("another-host")).unwrap();
    let failure = here.acquire(&a.ask(60_000), WITHIN).await.unwrap_err();
    assert_eq!((failure.cause, failure.unknown), (Cause::Misconfigured, false));
    assert!(failure.message().contains("one host only"), "{failure}");
    assert!(here.inspect(&a.name, WITHIN).await.is_err());
    Who::new("b", "job").gets(&there).await;
}

#[tokio::test]
async fn trap_23_wall_clock_stepped_an_hour_either_way() {
    for step in [3_600_000, -3_600_000] {
        let scene = Scene::new();
        let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
        let store = scene.open();
        let fence = a.gets(&store).await;
        scene.clock.step_wall(step);
        // Not a millisecond is lost or won.
        let left = a.sees(&store).await.unwrap().remaining.unwrap();
        assert_eq!(left, Duration::from_secs(60), "step {step}");
        assert!(matches!(
            b.put(&store, &b.ask(60_000)).await.unwrap(),
            Answer::Busy(_)
        ));
        let renewed = a.renews(&store, fence).await;
        let was_left = Some(Duration::from_secs(60));
        assert_eq!(renewed, Renewed::Extended { was_left }, "step {step}");
        scene.clock.pass(Duration::from_secs(60));
        assert_eq!(a.sees(&store).await, None, "step {step}");
        assert!(b.gets(&store).await > fence, "step {step}");
        assert_eq!(a.gives(&store).await, Given::NotOwned, "step {step}");
    }
}

#[tokio::test]
async fn the_real_boot_id_is_read_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).unwrap();
    Who::new("a", "job").gets(&store).await;
    let kept: String = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT value FROM meta WHERE key = 'boot'", [], |row| row.get(0))
        .unwrap();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(kept, kernel.trim());
}
