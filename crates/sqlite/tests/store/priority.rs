//! Priorities: holders go before acquirers; callers that left or timed out are skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::store::{RenewResponse, Store, StoreErrorKind};
use leasehold_sqlite::{SqliteOptions, SqliteStore};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient, await_event};
use crate::process::Process;

/// Runs everything that is ready: all tasks of this test share one thread.
async fn run_ready_tasks() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_flood_of_acquires_does_not_delay_a_renewal() {
    let context = Fixture::new();
    let store = Arc::new(context.open());
    let holder = TestClient::new("holder", "held");
    let fence = holder.expect_granted(&*store).await;

    // Another process is in the middle of a write transaction: all jobs queue up behind it.
    let other = context.raw_connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..300 {
        let (store, served) = (Arc::clone(&store), Arc::clone(&served));
        flood.spawn(async move {
            TestClient::new("asker", &format!("job:{number}")).expect_granted(&*store).await;
            served.fetch_add(1, Ordering::SeqCst)
        });
    }
    run_ready_tasks().await;
    let renewal = tokio::spawn({
        let (store, served, holder) = (Arc::clone(&store), Arc::clone(&served), holder.clone());
        async move {
            let renewed = holder.renew(&*store, fence).await;
            (renewed, served.load(Ordering::SeqCst))
        }
    });
    let release = tokio::spawn({
        let (store, served) = (Arc::clone(&store), Arc::clone(&served));
        async move {
            holder.release(&*store).await;
            served.load(Ordering::SeqCst)
        }
    });
    run_ready_tasks().await;
    other.execute_batch("ROLLBACK").unwrap();

    let (renewed, before_renewal) = await_event("the renewal", renewal).await.unwrap();
    assert!(matches!(renewed, RenewResponse::Extended { .. }), "{renewed:?}");
    let before_release = await_event("the release", release).await.unwrap();
    // One acquire was already running in the database when they arrived.
    assert!(before_renewal <= 1, "{before_renewal} acquires went first");
    assert!(before_release <= 1, "{before_release} acquires went first");
    while let Some(done) = await_event("the flood", flood.join_next()).await {
        done.unwrap();
    }
}

#[tokio::test]
async fn request_of_a_dropped_caller_is_not_run() {
    let context = Fixture::new();
    let store = Arc::new(context.open());
    let other = context.raw_connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { TestClient::new("first", "first").expect_granted(&*store).await }
    });
    run_ready_tasks().await;
    let left = TestClient::new("left", "left");
    let leaver = tokio::spawn({
        let (store, left) = (Arc::clone(&store), left.clone());
        async move { left.expect_granted(&*store).await }
    });
    run_ready_tasks().await;
    leaver.abort();
    run_ready_tasks().await;
    other.execute_batch("ROLLBACK").unwrap();
    await_event("the first", first).await.unwrap();
    // Jobs run in order, so the turn of the aborted caller has passed.
    TestClient::new("last", "last").expect_granted(&*store).await;
    assert_eq!(left.inspect(&*store).await, None);
}

#[tokio::test]
async fn a_database_kept_busy_is_overloaded_and_nothing_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let options = SqliteOptions::new(&path).clock(BootClock::shared());
    let store = SqliteStore::open(options).unwrap();
    let who = TestClient::new("a", "job");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failure = store.acquire(&who.acquire_request(60_000), Duration::from_millis(50)).await.unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false), "{failure}");
    let answers = store.renew(&[], CALL_TIMEOUT).await;
    assert!(answers.is_empty());
    // Reads do not wait for writers.
    assert_eq!(who.inspect(&store).await, None);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(who.inspect(&store).await, None);
    who.expect_granted(&store).await;
}

#[tokio::test]
async fn who_keeps_a_database_busy_is_named_and_what_keeps_them_too() {
    let context = Fixture::new();
    let store = context.open();
    let who = TestClient::new("a", "job");
    let refused = || async {
        let asked = store.acquire(&who.acquire_request(60_000), Duration::from_millis(50)).await;
        let failure = asked.unwrap_err();
        assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false));
        failure.to_string()
    };
    let blocking = Process::start("block", &context.path());
    blocking.next_message().unwrap();
    let pid = blocking.pid();
    let named = format!("process {pid} (");
    let told = refused().await;
    assert!(told.contains(&named) && !told.contains("stopped"), "{told}");
    let stopped = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    await_event("its stop", async {
        while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The kernel's lock list covers the whole host, so the store does not read
    // it for every request.
    let told = refused().await;
    assert!(told.contains(&named) && !told.contains("stopped"), "{told}");
    context.clock.advance(Duration::from_secs(1));
    let told = refused().await;
    assert!(told.contains(&named) && told.contains("is stopped"), "{told}");
    let unopened =
        SqliteStore::open(context.options().busy_timeout(Duration::from_millis(50)).boot_id("boot-2"));
    let told = unopened.unwrap_err().to_string();
    assert!(told.contains(&named) && told.contains("is stopped"), "{told}");

    // The advice in the error works.
    drop(blocking);
    who.expect_granted(&store).await;
    let here = context.raw_connection();
    here.execute_batch("BEGIN IMMEDIATE").unwrap();
    context.clock.advance(Duration::from_secs(1));
    let told = refused().await;
    assert!(told.contains("this very process"), "{told}");
}

/// A caller that times out must treat its request as unknown. Several attempts, because a busy
/// machine may use up the margin.
#[tokio::test]
async fn a_database_kept_busy_says_so_before_its_asker_stops_listening() {
    let context = Fixture::new();
    let store = SqliteStore::open(SqliteOptions::new(context.path())).unwrap();
    let other = context.raw_connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let within = Duration::from_millis(600);
    let mut earlier = Vec::new();
    while earlier.len() < 8 && earlier.last() < Some(&Duration::from_millis(15)) {
        let ends = BootClock.now() + within;
        let failure =
            store.acquire(&TestClient::new("a", "job").acquire_request(60_000), within).await.unwrap_err();
        assert!(!failure.unknown, "{failure}");
        earlier.push(ends.since(BootClock.now()));
    }
    assert!(earlier.last() >= Some(&Duration::from_millis(15)), "{earlier:?}");
}

#[tokio::test]
async fn dropping_the_store_ends_its_threads() {
    let threads = |name: &str| {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        all.flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .filter(|comm| comm.trim() == name)
            .count()
    };
    // Other tests of this process have threads of the same name: only this
    // store's open files tell them apart.
    let context = Fixture::new();
    let store = context.open();
    let who = TestClient::new("a", "job");
    let listener = store.listen(&who.name, &who.token);
    who.expect_granted(&store).await;
    // A thread has its name only once it runs: the reader's may not have run yet.
    await_event("the store's threads", async {
        while threads("leasehold-sqlit") < 2 || context.open_files() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop((store, listener));
    // A thread owns its connection: it has ended once the files are closed.
    context.wait_closed().await;
    let left = std::fs::read_dir(context.path().with_file_name("locks.db.wake")).unwrap().count();
    assert_eq!(left, 0, "the socket is removed");
}
