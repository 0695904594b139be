//! Who is served when: holders before askers, nobody who has left, nobody past their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::store::{Cause, Renewed, Store};
use leasehold_sqlite::{SqliteOptions, SqliteStore};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::Process;
use crate::scene::{Scene, WITHIN, Who, comes};

/// Lets everything that is ready run: all tasks of this test share one thread.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_flood_of_acquires_does_not_delay_a_renewal() {
    let scene = Scene::new();
    let store = Arc::new(scene.open());
    let holder = Who::new("holder", "held");
    let fence = holder.gets(&*store).await;

    // Another process is in the middle of a step: everything queues up behind it.
    let other = scene.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..300 {
        let (store, served) = (Arc::clone(&store), Arc::clone(&served));
        flood.spawn(async move {
            Who::new("asker", &format!("job:{number}")).gets(&*store).await;
            served.fetch_add(1, Ordering::SeqCst)
        });
    }
    settle().await;
    let renewal = tokio::spawn({
        let (store, served, holder) = (Arc::clone(&store), Arc::clone(&served), holder.clone());
        async move {
            let renewed = holder.renews(&*store, fence).await;
            (renewed, served.load(Ordering::SeqCst))
        }
    });
    let release = tokio::spawn({
        let (store, served) = (Arc::clone(&store), Arc::clone(&served));
        async move {
            holder.gives(&*store).await;
            served.load(Ordering::SeqCst)
        }
    });
    settle().await;
    other.execute_batch("ROLLBACK").unwrap();

    let (renewed, before_renewal) = comes("the renewal", renewal).await.unwrap();
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    let before_release = comes("the release", release).await.unwrap();
    // One acquire was already in the database when they came.
    assert!(before_renewal <= 1, "{before_renewal} acquires went first");
    assert!(before_release <= 1, "{before_release} acquires went first");
    while let Some(done) = comes("the flood", flood.join_next()).await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_question_whose_asker_has_left_is_not_put() {
    let scene = Scene::new();
    let store = Arc::new(scene.open());
    let other = scene.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { Who::new("first", "first").gets(&*store).await }
    });
    settle().await;
    let left = Who::new("left", "left");
    let leaver = tokio::spawn({
        let (store, left) = (Arc::clone(&store), left.clone());
        async move { left.gets(&*store).await }
    });
    settle().await;
    leaver.abort();
    settle().await;
    other.execute_batch("ROLLBACK").unwrap();
    comes("the first", first).await.unwrap();
    // Served in order, so the leaver's turn is over.
    Who::new("last", "last").gets(&*store).await;
    assert_eq!(left.sees(&*store).await, None);
}

#[tokio::test]
async fn a_database_kept_busy_is_overloaded_and_nothing_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let options = SqliteOptions::new(&path).clock(BootClock::shared());
    let store = SqliteStore::open(options).unwrap();
    let who = Who::new("a", "job");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failure = store
        .acquire(&who.ask(60_000), Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.cause, failure.unknown),
        (Cause::Overloaded, false),
        "{failure}"
    );
    let answers = store.renew(&[], WITHIN).await;
    assert!(answers.is_empty());
    // Looking does not wait for writers.
    assert_eq!(who.sees(&store).await, None);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(who.sees(&store).await, None);
    who.gets(&store).await;
}

#[tokio::test]
async fn who_keeps_a_database_busy_is_named_and_what_keeps_them_too() {
    let scene = Scene::new();
    let store = scene.open();
    let who = Who::new("a", "job");
    let refused = || async {
        let asked = store.acquire(&who.ask(60_000), Duration::from_millis(50)).await;
        let failure = asked.unwrap_err();
        assert_eq!((failure.cause, failure.unknown), (Cause::Overloaded, false));
        failure.to_string()
    };
    let blocking = Process::start("block", &scene.path());
    blocking.hears().unwrap();
    let pid = blocking.pid();
    let named = format!("process {pid} (");
    let told = refused().await;
    assert!(told.contains(&named) && !told.contains("stopped"), "{told}");
    let stopped = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    comes("its stop", async {
        while !std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .contains(") T ")
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The list of locks is the whole host's: it is not read at every try.
    let told = refused().await;
    assert!(told.contains(&named) && !told.contains("stopped"), "{told}");
    scene.clock.pass(Duration::from_secs(1));
    let told = refused().await;
    assert!(told.contains(&named) && told.contains("is stopped"), "{told}");
    let unopened = SqliteStore::open(
        scene
            .options()
            .busy_timeout(Duration::from_millis(50))
            .boot_id("boot-2"),
    );
    let told = unopened.unwrap_err().to_string();
    assert!(told.contains(&named) && told.contains("is stopped"), "{told}");

    // What it says to do helps.
    drop(blocking);
    who.gets(&store).await;
    let here = scene.raw();
    here.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.clock.pass(Duration::from_secs(1));
    let told = refused().await;
    assert!(told.contains("this very process"), "{told}");
}

/// Who stops listening first must take what it asked for as unknown. Among several tries, because a busy machine may take more of the time than is
/// left over.
#[tokio::test]
async fn a_database_kept_busy_says_so_before_its_asker_stops_listening() {
    let scene = Scene::new();
    let store = SqliteStore::open(SqliteOptions::new(scene.path())).unwrap();
    let other = scene.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let within = Duration::from_millis(600);
    let mut earlier = Vec::new();
    while earlier.len() < 8 && earlier.last() < Some(&Duration::from_millis(15)) {
        let ends = BootClock.now() + within;
        let failure = store
            .acquire(&Who::new("a", "job").ask(60_000), within)
            .await
            .unwrap_err();
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
    // Other tests of this process have threads of the same name: only this store's file tells them apart.
    let scene = Scene::new();
    let store = scene.open();
    let who = Who::new("a", "job");
    let listener = store.listen(&who.name, &who.token);
    who.gets(&store).await;
    assert!(threads("leasehold-sqlit") >= 2 && scene.open_files() >= 2);
    drop((store, listener));
    // A thread owns its connection: once the files are closed, it has ended.
    scene.closed().await;
    let left = std::fs::read_dir(scene.path().with_file_name("locks.db.wake"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "the socket is removed");
}
