//! A release wakes waiters across store values and processes. The clock stands still and no waiter
//! polls before it is woken, so only the wake-up lets it in.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::store::{ReleaseResponse, Store};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::fixture::{Fixture, TestClient, await_event};
use crate::process::Process;

#[tokio::test]
async fn waiters_of_other_values_are_woken_one_by_one_in_order() {
    let context = Fixture::new();
    let mut store = context.open();
    let mut holder = TestClient::new("holder", "job");
    let mut fence = holder.expect_granted(&store).await;
    let mut line = Vec::new();
    for number in 0..4 {
        let (store, who) = (context.open(), TestClient::new(&format!("waiter-{number}"), "job"));
        let listener = store.listen(&who.name, &who.token);
        who.expect_queued(&store).await;
        line.push((store, who, listener));
    }
    while !line.is_empty() {
        assert_eq!(holder.release(&store).await, ReleaseResponse::Released);
        let (next_store, next, listener) = line.remove(0);
        await_event("the wake-up", listener.notified()).await;
        for (_, other, listener) in &line {
            assert!(listener.notified().now_or_never().is_none(), "{other:?} was woken too");
        }
        // The hand-over issues a new fence, which the confirmation does not change.
        let handed = next.inspect(&next_store).await.unwrap();
        assert_eq!(handed.holder, next.token.holder());
        let confirmed = next.expect_granted(&next_store).await;
        assert_eq!(handed.fence, Some(confirmed));
        assert!(confirmed > fence);
        (store, holder, fence) = (next_store, next, confirmed);
    }
}

#[tokio::test]
async fn waiters_of_the_same_value_are_woken_too() {
    let context = Fixture::new();
    let store = context.open();
    let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    a.expect_granted(&store).await;
    let listener = store.listen(&b.name, &b.token);
    b.expect_queued(&store).await;
    a.release(&store).await;
    await_event("the wake-up", listener.notified()).await;
    b.expect_granted(&store).await;
}

#[tokio::test]
async fn another_process_is_woken() {
    let context = Fixture::new();
    let store = SqliteStore::open(SqliteOptions::new(context.path())).unwrap();
    let a = TestClient::new("a", "job");
    let fence = a.expect_granted(&store).await;
    let process = Process::start("wait", &context.path());
    assert_eq!(process.next_message().as_deref(), Some("queued"));
    a.release(&store).await;
    assert_eq!(process.next_message().as_deref(), Some("woken"));
    assert!(process.next_message().unwrap().parse::<u64>().unwrap() > fence.get());
}

#[tokio::test]
async fn trap_19_a_dead_waiter_is_passed_over_in_the_same_release() {
    let context = Fixture::new();
    let folder = context.path().with_file_name("locks.db.wake");
    let real = || SqliteStore::open(SqliteOptions::new(context.path())).unwrap();
    let (store, next_store) = (real(), real());
    let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    a.expect_granted(&store).await;
    for _ in 0..3 {
        let dead = Process::start("wait", &context.path());
        assert_eq!(dead.next_message().as_deref(), Some("queued"));
        dead.kill();
    }
    let listener = next_store.listen(&b.name, &b.token);
    b.expect_queued(&next_store).await;
    assert_eq!(a.inspect(&store).await.unwrap().waiters, Some(4), "the dead are still in the queue");
    a.release(&store).await;
    // The wake-up proves that the release skipped the three dead waiters.
    await_event("the wake-up", listener.notified()).await;
    b.expect_granted(&next_store).await;
    assert_eq!(b.inspect(&store).await.unwrap().waiters, Some(0));
    let sockets = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(sockets, 1, "the sockets of the dead are gone");
}

#[tokio::test]
async fn dead_process_with_many_waiters_is_skipped_at_once() {
    let context = Fixture::new();
    let store = context.open();
    let (a, last) = (TestClient::new("a", "job"), TestClient::new("last", "job"));
    a.expect_granted(&store).await;
    let crowded = context.open();
    let mut listeners = Vec::new();
    for number in 0..100 {
        let who = TestClient::new(&format!("w{number}"), "job");
        listeners.push(crowded.listen(&who.name, &who.token));
        who.expect_queued(&crowded).await;
    }
    // Its socket is removed with it; its rows stay, as after a crash.
    drop(crowded);
    let folder = context.path().with_file_name("locks.db.wake");
    await_event("the end of its socket", async {
        while std::fs::read_dir(&folder).unwrap().count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    last.expect_queued(&store).await;
    a.release(&store).await;
    assert_eq!(last.inspect(&store).await.unwrap().holder, "last");
    drop(listeners);
}

#[tokio::test]
async fn waiter_without_wakeups_gets_in_by_polling() {
    let context = Fixture::new();
    let (store, deaf) = (context.open(), context.open());
    let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    a.expect_granted(&store).await;
    // This store value never listens, so there is no socket to send to.
    b.expect_queued(&deaf).await;
    a.release(&store).await;
    assert_eq!(b.inspect(&store).await.unwrap().holder, "b");
    b.expect_granted(&deaf).await;
}

#[tokio::test]
async fn removed_wake_folder_is_recreated() {
    let context = Fixture::new();
    let folder = context.path().with_file_name("locks.db.wake");
    let (store, other) = (context.open(), context.open());
    let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    a.expect_granted(&store).await;
    let listener = other.listen(&b.name, &b.token);
    b.expect_queued(&other).await;
    std::fs::remove_dir_all(&folder).unwrap();
    // The next poll, which every waiter makes now and then, creates the folder again.
    b.expect_queued(&other).await;
    a.release(&store).await;
    await_event("the wake-up", listener.notified()).await;
}

#[tokio::test]
async fn the_wake_folder_is_private_and_its_path_may_be_long() {
    let context = Fixture::new();
    let deep = context.path().with_file_name("d".repeat(120)).join("e".repeat(120)).join("locks.db");
    let options = || {
        SqliteOptions::new(&deep)
            .clock(Arc::<crate::fixture::ManualClock>::clone(&context.clock))
            .boot_id("b")
    };
    let (store, other) = (SqliteStore::open(options()).unwrap(), SqliteStore::open(options()).unwrap());
    let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    a.expect_granted(&store).await;
    let listener = other.listen(&b.name, &b.token);
    b.expect_queued(&other).await;
    let folder = deep.with_file_name("locks.db.wake");
    let sockets: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(sockets.len(), 1);
    assert!(sockets[0].file_type().unwrap().is_socket());
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    a.release(&store).await;
    await_event("the wake-up", listener.notified()).await;
}

#[tokio::test]
async fn socket_of_a_dead_process_is_removed() {
    let context = Fixture::new();
    let folder = context.path().with_file_name("locks.db.wake");
    let store = SqliteStore::open(SqliteOptions::new(context.path())).unwrap();
    TestClient::new("a", "job").expect_granted(&store).await;
    let dead = Process::start("wait", &context.path());
    assert_eq!(dead.next_message().as_deref(), Some("queued"));
    dead.kill();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    let b = TestClient::new("b", "other");
    let _listener = store.listen(&b.name, &b.token);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "one went, one came");
}

#[tokio::test]
async fn expired_waiter_gets_no_hand_over() {
    let context = Fixture::new();
    let store = context.open();
    let (a, b) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    let long = a.acquire_request(3_600_000);
    a.acquire(&store, &long).await.unwrap();
    b.expect_queued(&store).await;
    context.clock.advance(Duration::from_secs(600));
    a.release(&store).await;
    assert_eq!(b.inspect(&store).await, None);
}
