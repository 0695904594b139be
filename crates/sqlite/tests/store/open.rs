//! Opening the file: races between processes, refused files, and the error texts.

use std::os::unix::fs::PermissionsExt;

use leasehold_core::store::{Promise, Store, StoreErrorKind};
use leasehold_sqlite::{Durability, SqliteOptions, SqliteStore};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};
use crate::process::Process;

#[tokio::test]
async fn eight_processes_may_open_a_new_file_at_once() {
    for _ in 0..8 {
        let context = Fixture::new();
        let path = context.path().with_file_name("new").join("folder").join("locks.db");
        let mut processes: Vec<_> = (0..8).map(|_| Process::start("open", &path)).collect();
        for process in &processes {
            assert_eq!(process.next_message().as_deref(), Some("ready"));
        }
        for process in &mut processes {
            process.send_line();
        }
        for process in &processes {
            let fence = process.next_message().expect("every one of them gets its lease");
            fence.parse::<u64>().unwrap();
        }
        let store = SqliteStore::open(SqliteOptions::new(&path)).unwrap();
        assert_eq!(store.list("job:", 100, CALL_TIMEOUT).await.unwrap().leases.len(), 8);
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().contains(".new-")), "{left:?}");
    }
}

#[tokio::test]
async fn eight_threads_may_open_a_new_file_at_once() {
    let context = Fixture::new();
    let stores: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| context.open())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let who = TestClient::new("a", "job");
    who.expect_granted(&stores[0]).await;
    for store in &stores {
        assert!(who.inspect(store).await.is_some());
    }
}

#[test]
fn the_file_is_for_its_owner_only() {
    let context = Fixture::new();
    let _store = context.open();
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let mode = context.path().with_file_name(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

fn open_error(options: SqliteOptions) -> (StoreErrorKind, String) {
    let failure = SqliteStore::open(options).unwrap_err();
    assert!(!failure.unknown, "{failure}");
    (failure.kind, failure.message().to_owned())
}

#[test]
fn a_newer_schema_is_refused() {
    let context = Fixture::new();
    drop(context.open());
    context.raw_connection().pragma_update(None, "user_version", 2).unwrap();
    let (cause, message) = open_error(context.options());
    assert_eq!(cause, StoreErrorKind::Misconfigured);
    assert!(message.contains("version 2") && message.contains("update this program"), "{message}");
}

#[test]
fn other_programs_database_is_refused_and_unchanged() {
    let context = Fixture::new();
    context.raw_connection().execute_batch("CREATE TABLE invoices (number INTEGER)").unwrap();
    let before = std::fs::read(context.path()).unwrap();
    let (cause, message) = open_error(context.options());
    assert_eq!(cause, StoreErrorKind::Misconfigured);
    assert!(message.contains("another program's"), "{message}");
    assert_eq!(std::fs::read(context.path()).unwrap(), before);
}

#[test]
fn file_that_is_no_database_is_refused_and_unchanged() {
    let context = Fixture::new();
    let text = "Dear diary, this is not a database at all. ".repeat(100);
    std::fs::write(context.path(), &text).unwrap();
    let (cause, message) = open_error(context.options());
    assert_eq!(cause, StoreErrorKind::Misconfigured);
    assert!(message.contains("not an SQLite database"), "{message}");
    assert_eq!(std::fs::read_to_string(context.path()).unwrap(), text);
}

#[test]
fn impossible_paths_are_refused() {
    let context = Fixture::new();
    std::fs::create_dir(context.path()).unwrap();
    let (cause, message) = open_error(context.options());
    assert_eq!(cause, StoreErrorKind::Misconfigured, "{message}");
    assert!(message.contains("not a file"), "{message}");

    let (cause, message) = open_error(SqliteOptions::new(""));
    assert_eq!(cause, StoreErrorKind::Misconfigured, "{message}");

    let file = context.path().with_file_name("file");
    std::fs::write(&file, "x").unwrap();
    let (_, message) = open_error(SqliteOptions::new(file.join("locks.db")));
    assert!(message.contains("check the path"), "{message}");

    let (_, message) = open_error(SqliteOptions::new("/proc/leasehold/locks.db"));
    assert!(message.contains("/proc/leasehold"), "{message}");

    let link = context.path().with_file_name("link");
    std::os::unix::fs::symlink(context.path().with_file_name("nowhere"), &link).unwrap();
    let (_, message) = open_error(SqliteOptions::new(&link));
    assert!(message.contains("cannot find"), "{message}");
}

#[tokio::test]
async fn empty_file_and_symlink_are_accepted() {
    let context = Fixture::new();
    std::fs::write(context.path(), "").unwrap();
    let link = context.path().with_file_name("link.db");
    std::os::unix::fs::symlink(context.path(), &link).unwrap();
    let clock = std::sync::Arc::<crate::fixture::ManualClock>::clone(&context.clock);
    let linked = SqliteStore::open(SqliteOptions::new(&link).clock(clock).boot_id("boot-1")).unwrap();
    let who = TestClient::new("a", "job");
    who.expect_granted(&linked).await;
    assert!(who.inspect(&context.open()).await.is_some(), "both paths lead to the same leases");
}

#[tokio::test]
async fn removed_file_is_recreated_for_all_store_values() {
    let context = Fixture::new();
    let (one, two) = (context.open(), context.open());
    let who = TestClient::new("a", "job");
    let before = who.expect_granted(&one).await;
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        std::fs::remove_file(context.path().with_file_name(file)).unwrap();
    }
    context.clock.advance(std::time::Duration::from_millis(1));
    let next = TestClient::new("b", "job");
    assert!(next.expect_granted(&one).await > before);
    // The other store value must not continue in the removed file.
    assert_eq!(next.inspect(&two).await.unwrap().holder, "b");
    assert_eq!(who.renew(&two, before).await, leasehold_core::store::RenewResponse::NotOwned);
}

#[tokio::test]
async fn full_durability_serves_the_same_leases() {
    let context = Fixture::new();
    let full = SqliteStore::open(context.options().durability(Durability::Full)).unwrap();
    let who = TestClient::new("a", "job");
    who.expect_granted(&full).await;
    assert!(who.inspect(&context.open()).await.is_some());
    let promised = full.promise(CALL_TIMEOUT).await.unwrap();
    assert_eq!(promised.promise, Promise::Durable);
    assert!(promised.limits.iter().all(|why| !why.contains("durability")), "{promised:?}");
    let promised = context.open().promise(CALL_TIMEOUT).await.unwrap();
    assert_eq!(promised.promise, Promise::Durable);
}

/// Closing any descriptor of a database drops all POSIX locks that the process has on it.
#[test]
fn creating_a_file_that_exists_keeps_the_locks_of_this_process() {
    let context = Fixture::new();
    let path = context.path().with_file_name("other.db");
    leasehold_sqlite::create_database_file(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE t (x); BEGIN IMMEDIATE").unwrap();

    leasehold_sqlite::create_database_file(&path).unwrap();

    // POSIX locks exclude other processes only.
    let other = std::process::Command::new("sqlite3").arg(&path).arg("BEGIN IMMEDIATE").output().unwrap();
    let message = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && message.contains("locked"), "{message}");
}

#[test]
fn durability_round_trips_through_text() {
    for each in [Durability::Normal, Durability::Full] {
        assert_eq!(each.to_string().parse::<Durability>().unwrap(), each);
    }
    let message = "off".parse::<Durability>().unwrap_err().to_string();
    assert!(message.contains("normal") && message.contains("full"), "{message}");
}
