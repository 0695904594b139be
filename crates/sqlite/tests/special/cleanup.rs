//! The file does not keep what is past, and never loses what is not.

use std::time::Duration;

use leasehold_core::store::{Giving, Store};

use crate::scene::{Scene, WITHIN, Who, comes};

#[tokio::test]
async fn what_is_past_goes_away_step_by_step() {
    let scene = Scene::new();
    let store = scene.open();
    // Everybody crashes: leases, waiters and tombstones stay behind.
    for number in 0..200 {
        let (holder, waiter) = (
            Who::new("h", &format!("job:{number}")),
            Who::new("w", &format!("job:{number}")),
        );
        holder.gets(&store).await;
        waiter.queues(&store).await;
        let undone = Who::new("u", &format!("job:{number}"));
        store
            .release(&Giving::undo(undone.name, undone.token), WITHIN)
            .await
            .unwrap();
    }
    let all = ["leases", "waiters", "tombstones"].map(|table| scene.count(table));
    assert_eq!(all, [200; 3]);
    scene.clock.pass(Duration::from_secs(601));

    // Somebody else's life goes on.
    let who = Who::new("a", "other");
    for _ in 0..120 {
        who.gets(&store).await;
        who.gives(&store).await;
    }
    let left = ["leases", "waiters", "tombstones"].map(|table| scene.count(table));
    assert_eq!(left, [0; 3]);
}

/// No step pays for all that others have left: a clean-up looks at 64 rows of each table, and this is the first step of its process.
#[tokio::test]
async fn a_step_removes_a_bounded_number_of_rows() {
    let scene = Scene::new();
    let store = scene.open();
    for number in 0..200 {
        Who::new("h", &format!("job:{number}")).gets(&store).await;
    }
    scene.clock.pass(Duration::from_secs(61));
    Who::new("a", "other").gets(&scene.open()).await;
    assert_eq!(scene.count("leases"), 200 - 64 + 1);
}

/// Nor does it go back to rows that the last one has looked at.
#[tokio::test]
async fn a_clean_up_goes_on_where_the_last_one_stopped() {
    let scene = Scene::new();
    let store = scene.open();
    for number in 0..200 {
        let who = Who::new("h", &format!("job:{number:03}"));
        let ttl = if number < 64 { 120_000 } else { 60_000 };
        who.put(&store, &who.ask(ttl)).await.unwrap();
    }
    let from_the_start = "DELETE FROM meta WHERE key = 'cleaned_up_to'";
    scene.raw().execute(from_the_start, []).unwrap();
    scene.clock.pass(Duration::from_secs(61));
    Who::new("a", "other").gets(&scene.open()).await;
    assert_eq!(scene.count("leases"), 201, "the first 64 are alive");
    scene.clock.pass(Duration::from_secs(60));
    Who::new("b", "yet-another").gets(&scene.open()).await;
    assert_eq!(scene.count("leases"), 202 - 64);
}

#[tokio::test]
async fn trap_25_clean_up_never_removes_what_is_alive() {
    let scene = Scene::new();
    let store = scene.open();
    let alive: Vec<_> = (0..100)
        .map(|number| Who::new("h", &format!("alive:{number}")))
        .collect();
    for who in &alive {
        who.gets(&store).await;
    }
    // One millisecond before they would run out.
    scene.clock.pass(Duration::from_millis(59_999));
    let who = Who::new("a", "other");
    for _ in 0..80 {
        who.gets(&store).await;
        who.gives(&store).await;
    }
    for who in &alive {
        assert!(who.sees(&store).await.is_some(), "{:?}", who.name);
    }
}

#[tokio::test]
async fn short_lived_processes_clean_up_too() {
    let scene = Scene::new();
    for number in 0..20 {
        Who::new("h", &format!("job:{number}")).gets(&scene.open()).await;
        scene.clock.pass(Duration::from_secs(61));
    }
    assert!(scene.count("leases") <= 2, "{}", scene.count("leases"));
}

/// Cutting the log off is done by someone who holds the write lock, and may wait for the filesystem: not each time that many writers have made it a
/// little longer than usual.
#[tokio::test]
async fn the_log_is_cut_off_after_a_burst_and_not_before() {
    let scene = Scene::new();
    let store = scene.open();
    let log = scene.path().with_file_name("locks.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    // Grows by one whenever the log begins anew.
    let rounds = || u32::from_be_bytes(std::fs::read(&log).unwrap()[12..16].try_into().unwrap());
    let other = scene.raw();
    other.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    other.execute_batch("CREATE TABLE ballast (x)").unwrap();
    for (megabytes, left) in [(24_u32, 24), (96, 64)] {
        let round = rounds();
        let bytes = megabytes << 20;
        other
            .execute("INSERT INTO ballast VALUES (zeroblob(?1))", [bytes])
            .unwrap();
        assert!(length() > u64::from(bytes), "{} is not a long log", length());
        comes("a new round of the log", async {
            while rounds() == round {
                let who = Who::new("a", "job");
                who.gets(&store).await;
                who.gives(&store).await;
            }
        })
        .await;
        assert_eq!(length() >> 20, left, "after {megabytes} MiB");
    }
}
