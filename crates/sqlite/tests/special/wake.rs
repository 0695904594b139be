//! Waiters are woken by the release itself, across store values and processes. The clock stands still and
//! nobody asks again before being woken, so nothing but the wake-up can let them in.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::store::{Given, Store};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::process::Process;
use crate::scene::{Scene, Who, comes};

#[tokio::test]
async fn waiters_of_other_values_are_woken_one_by_one_in_order() {
    let scene = Scene::new();
    let mut store = scene.open();
    let mut holder = Who::new("holder", "job");
    let mut fence = holder.gets(&store).await;
    let mut line = Vec::new();
    for number in 0..4 {
        let (store, who) = (scene.open(), Who::new(&format!("waiter-{number}"), "job"));
        let listener = store.listen(&who.name, &who.token);
        who.queues(&store).await;
        line.push((store, who, listener));
    }
    while !line.is_empty() {
        assert_eq!(holder.gives(&store).await, Given::Released);
        let (next_store, next, listener) = line.remove(0);
        comes("the wake-up", listener.woken()).await;
        for (_, other, listener) in &line {
            assert!(
                listener.woken().now_or_never().is_none(),
                "{other:?} was woken too"
            );
        }
        // Handed over with a fence of its own, which confirming does not change.
        let handed = next.sees(&next_store).await.unwrap();
        assert_eq!(handed.holder, next.token.holder());
        let confirmed = next.gets(&next_store).await;
        assert_eq!(handed.fence, Some(confirmed));
        assert!(confirmed > fence);
        (store, holder, fence) = (next_store, next, confirmed);
    }
}

#[tokio::test]
async fn waiters_of_the_same_value_are_woken_too() {
    let scene = Scene::new();
    let store = scene.open();
    let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
    a.gets(&store).await;
    let listener = store.listen(&b.name, &b.token);
    b.queues(&store).await;
    a.gives(&store).await;
    comes("the wake-up", listener.woken()).await;
    b.gets(&store).await;
}

#[tokio::test]
async fn another_process_is_woken() {
    let scene = Scene::new();
    let store = SqliteStore::open(SqliteOptions::new(scene.path())).unwrap();
    let a = Who::new("a", "job");
    let fence = a.gets(&store).await;
    let process = Process::start("wait", &scene.path());
    assert_eq!(process.hears().as_deref(), Some("queued"));
    a.gives(&store).await;
    assert_eq!(process.hears().as_deref(), Some("woken"));
    assert!(process.hears().unwrap().parse::<u64>().unwrap() > fence.get());
}

#[tokio::test]
async fn trap_19_a_dead_waiter_is_passed_over_in_the_same_release() {
    let scene = Scene::new();
    let folder = scene.path().with_file_name("locks.db.wake");
    let real = || SqliteStore::open(SqliteOptions::new(scene.path())).unwrap();
    let (store, next_store) = (real(), real());
    let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
    a.gets(&store).await;
    for _ in 0..3 {
        let dead = Process::start("wait", &scene.path());
        assert_eq!(dead.hears().as_deref(), Some("queued"));
        dead.kill();
    }
    let listener = next_store.listen(&b.name, &b.token);
    b.queues(&next_store).await;
    assert_eq!(
        a.sees(&store).await.unwrap().waiters,
        Some(4),
        "the dead are still in the queue"
    );
    a.gives(&store).await;
    // Only a release that passed over the three dead can have rung this bell.
    comes("the wake-up", listener.woken()).await;
    b.gets(&next_store).await;
    assert_eq!(b.sees(&store).await.unwrap().waiters, Some(0));
    let sockets = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(sockets, 1, "the sockets of the dead are gone");
}

#[tokio::test]
async fn a_dead_process_with_many_waiters_is_passed_over_at_once() {
    let scene = Scene::new();
    let store = scene.open();
    let (a, last) = (Who::new("a", "job"), Who::new("last", "job"));
    a.gets(&store).await;
    let crowded = scene.open();
    let mut listeners = Vec::new();
    for number in 0..100 {
        let who = Who::new(&format!("w{number}"), "job");
        listeners.push(crowded.listen(&who.name, &who.token));
        who.queues(&crowded).await;
    }
    // Its socket goes with it; the rows stay, as after a crash.
    drop(crowded);
    let folder = scene.path().with_file_name("locks.db.wake");
    comes("the end of its socket", async {
        while std::fs::read_dir(&folder).unwrap().count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    last.queues(&store).await;
    a.gives(&store).await;
    assert_eq!(last.sees(&store).await.unwrap().holder, "last");
    drop(listeners);
}

#[tokio::test]
async fn without_any_hint_asking_again_is_enough() {
    let scene = Scene::new();
    let (store, deaf) = (scene.open(), scene.open());
    let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
    a.gets(&store).await;
    // It never listens, so there is no socket to send to.
    b.queues(&deaf).await;
    a.gives(&store).await;
    assert_eq!(b.sees(&store).await.unwrap().holder, "b");
    b.gets(&deaf).await;
}

#[tokio::test]
async fn a_wake_folder_that_was_removed_is_made_anew() {
    let scene = Scene::new();
    let folder = scene.path().with_file_name("locks.db.wake");
    let (store, other) = (scene.open(), scene.open());
    let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
    a.gets(&store).await;
    let listener = other.listen(&b.name, &b.token);
    b.queues(&other).await;
    std::fs::remove_dir_all(&folder).unwrap();
    // Asking again, as every waiter does now and then, mends it.
    b.queues(&other).await;
    a.gives(&store).await;
    comes("the wake-up", listener.woken()).await;
}

#[tokio::test]
async fn the_wake_folder_is_private_and_its_path_may_be_long() {
    let scene = Scene::new();
    let deep = scene
        .path()
        .with_file_name("d".repeat(120))
        .join("e".repeat(120))
        .join("locks.db");
    let options = || {
        SqliteOptions::new(&deep)
            .clock(Arc::<crate::scene::HandClock>::clone(&scene.clock))
            .boot_id("b")
    };
    let (store, other) = (
        SqliteStore::open(options()).unwrap(),
        SqliteStore::open(options()).unwrap(),
    );
    let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
    a.gets(&store).await;
    let listener = other.listen(&b.name, &b.token);
    b.queues(&other).await;
    let folder = deep.with_file_name("locks.db.wake");
    let sockets: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(sockets.len(), 1);
    assert!(sockets[0].file_type().unwrap().is_socket());
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    a.gives(&store).await;
    comes("the wake-up", listener.woken()).await;
}

#[tokio::test]
async fn a_socket_left_by_a_dead_process_is_swept_up() {
    let scene = Scene::new();
    let folder = scene.path().with_file_name("locks.db.wake");
    let store = SqliteStore::open(SqliteOptions::new(scene.path())).unwrap();
    Who::new("a", "job").gets(&store).await;
    let dead = Process::start("wait", &scene.path());
    assert_eq!(dead.hears().as_deref(), Some("queued"));
    dead.kill();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    let b = Who::new("b", "other");
    let _listener = store.listen(&b.name, &b.token);
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "one went, one came"
    );
}

#[tokio::test]
async fn a_waiter_that_ran_out_is_not_handed_anything() {
    let scene = Scene::new();
    let store = scene.open();
    let (a, b) = (Who::new("a", "job"), Who::new("b", "job"));
    let long = a.ask(3_600_000);
    a.put(&store, &long).await.unwrap();
    b.queues(&store).await;
    scene.clock.pass(Duration::from_secs(600));
    a.gives(&store).await;
    assert_eq!(b.sees(&store).await, None);
}
