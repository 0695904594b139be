//! Two processes on one database; one is killed at the worst moment.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fences::{fence, name};
use leasehold_core::store::StoreError;
use leasehold_fence::sqlite;
use rusqlite::{Connection, TransactionBehavior};

/// Path of the database for the child, and whether the child commits before it reports ready.
const DATABASE: &str = "LEASEHOLD_FENCE_TEST_DATABASE";
const COMMITS: &str = "LEASEHOLD_FENCE_TEST_COMMITS";

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db
}

/// The child process: this test file again. Without its variable (in an
/// ordinary run) it does nothing.
#[test]
fn child_admits_nine_and_waits_for_its_end() {
    let Some(path) = std::env::var_os(DATABASE) else {
        return;
    };
    let mut db = open(Path::new(&path));
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    assert!(sqlite::admit(&tx, &name("job:42"), fence(9)).unwrap().is_admitted());
    tx.execute("INSERT INTO log (fence) VALUES (9)", []).unwrap();
    let still_open = if std::env::var_os(COMMITS).is_some() {
        tx.commit().unwrap();
        None
    } else {
        Some(tx)
    };
    println!("\nready");
    std::io::stdout().flush().unwrap();
    // Ends with the parent, so that a failed test leaves no process behind.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(still_open);
}

/// Starts the child and returns when it has reported ready.
fn ready_child(path: &Path, commits: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "sqlite_crash::child_admits_nine_and_waits_for_its_end", "--nocapture"])
        .env(DATABASE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if commits {
        command.env(COMMITS, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the child ended early");
    child
}

fn fresh() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.db");
    let db = open(&path);
    sqlite::install(&db).unwrap();
    db.execute_batch("CREATE TABLE log (id INTEGER PRIMARY KEY, fence INTEGER)").unwrap();
    (folder, path)
}

fn rows(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap()
}

#[test]
fn killed_before_the_commit_neither_mark_nor_data_stays() {
    let (_folder, path) = fresh();
    let mut child = ready_child(&path, false);
    let mut db = open(&path);

    // While the other process is in its transaction, this one is neither admitted nor refused.
    db.busy_timeout(Duration::ZERO).unwrap();
    let failure =
        sqlite::transact(&mut db, &name("job:42"), fence(5), |_| Ok::<_, StoreError>(())).unwrap_err();
    assert!(!failure.unknown, "{failure}");

    child.kill().unwrap();
    child.wait().unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!((sqlite::newest(&db, &name("job:42")).unwrap(), rows(&db)), (None, 0));
    let verdict = sqlite::transact(&mut db, &name("job:42"), fence(5), |_| Ok::<_, StoreError>(())).unwrap();
    assert!(verdict.is_admitted());
}

#[test]
fn killed_after_the_commit_both_stay() {
    let (_folder, path) = fresh();
    let mut child = ready_child(&path, true);
    child.kill().unwrap();
    child.wait().unwrap();

    let mut db = open(&path);
    assert_eq!((sqlite::newest(&db, &name("job:42")).unwrap(), rows(&db)), (Some(fence(9)), 1));
    let verdict = sqlite::transact(&mut db, &name("job:42"), fence(8), |_| Ok::<_, StoreError>(())).unwrap();
    assert!(!verdict.is_admitted());
}
