//! Documents outlive the boot, are timed by one clock in all processes, and live in files that older versions
//! of this program use too.

use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::store::{
    Document, DocumentOutcome, DocumentQuery, DocumentWrite, Documents, ExpectedVersion, StoreErrorKind,
};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};
use crate::process::Process;

const HOUR: Duration = Duration::from_secs(3600);
/// How often each of several racing clients adds to the counter.
const INCREMENTS: u64 = 20;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn write(store: &SqliteStore, request: DocumentWrite) -> u64 {
    match store.write(&request, CALL_TIMEOUT).await.unwrap() {
        DocumentOutcome::Changed(version) => version,
        other => panic!("{request:?} got {other:?}"),
    }
}

async fn put(store: &SqliteStore, at: &str, ttl: impl Into<Option<Duration>>) -> u64 {
    let request = DocumentWrite::new(name(at), "x");
    write(store, ttl.into().into_iter().fold(request, DocumentWrite::with_ttl)).await
}

async fn read(store: &SqliteStore, at: &str) -> Option<Document> {
    Documents::read(store, &name(at), CALL_TIMEOUT).await.unwrap().document
}

async fn remaining(store: &SqliteStore, at: &str) -> Option<Duration> {
    read(store, at).await.unwrap_or_else(|| panic!("{at} is absent")).remaining
}

/// Adds to the document `counter`, by compare-and-set.
pub(crate) async fn count(store: &SqliteStore) {
    for _ in 0..INCREMENTS {
        loop {
            let current = read(store, "counter").await.unwrap();
            let next = current.value.parse::<u64>().unwrap() + 1;
            let request = DocumentWrite::new(name("counter"), next.to_string())
                .expecting(ExpectedVersion::Exactly(current.version));
            if let DocumentOutcome::Changed(version) = store.write(&request, CALL_TIMEOUT).await.unwrap() {
                assert!(version > current.version, "{version} after {}", current.version);
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_handles_that_race_lose_no_update() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let open = || SqliteStore::open(SqliteOptions::new(&path)).unwrap();
    write(&open(), DocumentWrite::new(name("counter"), "0")).await;
    let mut processes: Vec<_> = (0..2).map(|_| Process::start("count", &path)).collect();
    for process in &processes {
        assert_eq!(process.next_message().as_deref(), Some("ready"));
    }
    let (one, two) = (open(), open());
    for process in &mut processes {
        process.send_line();
    }
    let handles = [one, two].map(|store| tokio::spawn(async move { count(&store).await }));
    for handle in handles {
        handle.await.unwrap();
    }
    for process in &processes {
        assert_eq!(process.next_message().as_deref(), Some("counted"));
    }
    assert_eq!(read(&open(), "counter").await.unwrap().value, (4 * INCREMENTS).to_string());
}

/// Prints the document `policy` after each change of it.
pub(crate) async fn follow(file: &str, send_message: impl Fn(String)) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    let listener = store.watch(&name("policy"));
    send_message("following".to_owned());
    loop {
        listener.notified().await;
        send_message(read(&store, "policy").await.map_or("absent".to_owned(), |found| found.value));
    }
}

#[tokio::test]
async fn followers_in_other_processes_are_notified_and_the_dead_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).unwrap();
    let [dead, one, two] = [(); 3].map(|()| Process::start("follow", &path));
    for process in [&dead, &one, &two] {
        assert_eq!(process.next_message().as_deref(), Some("following"));
    }
    dead.kill();
    let wake_folder = path.with_file_name("locks.db.wake");
    std::fs::write(wake_folder.join("abc"), "a file of the operator").unwrap();
    for value in ["a", "b"] {
        write(&store, DocumentWrite::new(name("policy"), value)).await;
        assert_eq!([&one, &two].map(Process::next_message), [(); 2].map(|()| Some(value.to_owned())));
    }
    let left = std::fs::read_dir(wake_folder).unwrap().count();
    assert_eq!(left, 2 + 1, "only the socket of the dead process is gone");
    write(&store, DocumentWrite::new(name("other"), "c")).await;
    let _ = store.delete(&name("policy"), ExpectedVersion::Any, CALL_TIMEOUT).await.unwrap();
    assert_eq!([&one, &two].map(Process::next_message), [(); 2].map(|()| Some("absent".to_owned())));
}

/// Files made by a version of this program that had no documents.
const OLD_FILE: &str = include_str!("old_file.sql");

fn make_old_file(context: &Fixture) {
    context.raw_connection().execute_batch(OLD_FILE).unwrap();
}

/// The marks and tables that an older version of this program looks at.
fn old_schema(context: &Fixture) -> (i64, i64, Vec<(String, String)>) {
    let db = context.raw_connection();
    let mark = |name: &str| db.pragma_query_value(None, name, |row| row.get(0)).unwrap();
    let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'document%' ORDER BY name";
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    (mark("application_id"), mark("user_version"), rows.map(Result::unwrap).collect())
}

#[tokio::test]
async fn a_file_of_an_older_version_is_opened_and_stays_usable_there() {
    let context = Fixture::new();
    make_old_file(&context);
    let before = old_schema(&context);
    let store = context.open();
    let lease = TestClient::new("a", "job").inspect(&store).await.unwrap();
    assert_eq!((lease.holder.as_str(), lease.fence.unwrap().get()), ("old-program", 1_800_000_000_000_000));
    let version = put(&store, "policy", HOUR).await;
    assert_eq!(read(&context.open(), "policy").await.unwrap().version, version);
    assert_eq!(old_schema(&context), before);
    // A new file is the same for an older version as one that it made itself.
    let new = Fixture::new();
    drop(new.open());
    let spaceless = |(application, version, tables): (i64, i64, Vec<(String, String)>)| {
        let tables = tables.into_iter().map(|(name, sql)| (name, sql.split_whitespace().collect::<String>()));
        (application, version, tables.collect::<Vec<_>>())
    };
    assert_eq!(spaceless(old_schema(&new)), spaceless(before));
}

#[tokio::test]
async fn eight_threads_may_add_the_tables_to_an_old_file_at_once() {
    let context = Fixture::new();
    make_old_file(&context);
    let stores: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| context.open())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    put(&stores[0], "policy", None).await;
    for store in &stores {
        assert!(read(store, "policy").await.is_some());
    }
}

#[tokio::test]
async fn setting_the_wall_clock_moves_no_expiry() {
    for step in [3_600_000, -3_600_000] {
        let context = Fixture::new();
        let store = context.open();
        put(&store, "brief", HOUR).await;
        let at = Documents::read(&store, &name("brief"), CALL_TIMEOUT).await.unwrap().store_time;
        context.clock.step_wall(step);
        // Another handle, as of a process that starts after the step.
        let store = context.open();
        let now = Documents::read(&store, &name("brief"), CALL_TIMEOUT).await.unwrap();
        assert_eq!((now.store_time, now.document.unwrap().remaining), (at, Some(HOUR)), "step {step}");
        context.clock.advance(HOUR - Duration::from_millis(1));
        assert_eq!(remaining(&store, "brief").await, Some(Duration::from_millis(1)), "step {step}");
        context.clock.advance(Duration::from_millis(1));
        assert_eq!(read(&store, "brief").await, None, "step {step}");
    }
}

fn reboot(context: &Fixture, boot: &str, wall_step: i64) -> SqliteStore {
    context.clock.reboot();
    context.clock.step_wall(wall_step);
    SqliteStore::open(context.options().boot_id(boot)).unwrap()
}

#[tokio::test]
async fn documents_outlive_the_boot_and_expire_by_the_wall_clock_in_between() {
    let context = Fixture::new();
    let store = context.open();
    let endless = put(&store, "endless", None).await;
    put(&store, "long", HOUR).await;
    put(&store, "brief", HOUR / 4).await;
    drop(store);
    context.clock.advance(HOUR / 10);
    // The machine was off for 18 minutes.
    let store = reboot(&context, "boot-2", 1_080_000);
    let found = read(&store, "endless").await.unwrap();
    assert_eq!((found.version, found.remaining), (endless, None));
    assert_eq!(remaining(&store, "long").await, Some(HOUR * 6 / 10));
    assert_eq!(read(&store, "brief").await, None);
    drop(store);
    // The wall clock comes back wrong: time continues from the last write, so no document lives longer than it may.
    let store = reboot(&context, "boot-3", -86_400_000);
    let left = remaining(&store, "long").await.unwrap();
    assert!(left <= HOUR && left > HOUR - Duration::from_millis(1), "{left:?}");
}

#[tokio::test]
async fn an_older_version_that_adopted_the_file_for_a_boot_does_not_stop_the_clock() {
    let context = Fixture::new();
    put(&context.open(), "brief", HOUR).await;
    // What an older version does first in a new boot; it knows nothing of documents.
    context.raw_connection().execute("UPDATE meta SET value = 'boot-2' WHERE key = 'boot'", []).unwrap();
    let store = reboot(&context, "boot-2", 1_800_000);
    assert_eq!(remaining(&store, "brief").await, Some(HOUR / 2));
}

#[tokio::test]
async fn versions_grow_past_wrong_clocks_reboots_and_the_loss_of_the_file() {
    let context = Fixture::new();
    let store = context.open();
    let mut versions = vec![put(&store, "policy", None).await, put(&store, "policy", None).await];
    context.clock.step_wall(-86_400_000);
    versions.push(put(&store, "policy", None).await);
    let _ = store.delete(&name("policy"), ExpectedVersion::Any, CALL_TIMEOUT).await.unwrap();
    drop(store);
    let store = reboot(&context, "boot-2", -86_400_000);
    versions.push(put(&store, "policy", HOUR).await);
    drop(store);
    context.wait_closed().await;
    context.remove_files();
    // The clock is right again.
    context.clock.step_wall(3 * 86_400_000);
    let store = SqliteStore::open(context.options().boot_id("boot-2")).unwrap();
    assert_eq!(read(&store, "policy").await, None);
    versions.push(put(&store, "policy", None).await);
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
}

/// A write removes 64 expired documents at most.
#[tokio::test]
async fn writes_remove_expired_documents_step_by_step() {
    let context = Fixture::new();
    let store = context.open();
    for number in 0..100 {
        put(&store, &format!("brief:{number}"), HOUR).await;
        put(&store, &format!("long:{number}"), HOUR + Duration::from_millis(1)).await;
    }
    put(&store, "endless", None).await;
    context.clock.advance(HOUR);
    let nothing = DocumentWrite::new(name("endless"), "y").expecting(ExpectedVersion::Absent);
    let refused = store.write(&nothing, CALL_TIMEOUT).await.unwrap();
    assert!(matches!(refused, DocumentOutcome::Conflict(Some(_))), "{refused:?}");
    assert_eq!(context.count("documents"), 201);
    put(&store, "endless", None).await;
    assert_eq!(context.count("documents"), 201 - 64);
    put(&store, "endless", None).await;
    put(&store, "endless", None).await;
    assert_eq!(context.count("documents"), 101);
    let page = Documents::list(&store, &DocumentQuery::new("long:", 1000), CALL_TIMEOUT).await.unwrap();
    assert_eq!(page.documents.len(), 100);
}

#[tokio::test]
async fn a_change_of_a_locked_file_was_not_made_and_reads_are_answered() {
    let context = Fixture::new();
    let store = context.open();
    let version = put(&store, "policy", None).await;
    let busy = context.raw_connection();
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    let soon = Duration::from_millis(50);
    let request = DocumentWrite::new(name("policy"), "y");
    let failures = [
        store.write(&request, soon).await.unwrap_err(),
        store.delete(&request.name, ExpectedVersion::Any, soon).await.unwrap_err(),
    ];
    for failure in failures {
        assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false), "{failure}");
    }
    assert_eq!(read(&store, "policy").await.unwrap().version, version);
    busy.execute_batch("ROLLBACK").unwrap();
    assert_eq!(read(&store, "policy").await.unwrap().version, version);
}
