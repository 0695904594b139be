//! Durability tests of the daemon's database.

use std::pin::Pin;
use std::task::{Context, Waker};

use super::*;

/// A daemon of this version opens the file of an earlier one that contains a hold.
#[test]
fn a_database_of_an_earlier_version_is_migrated() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(
        "CREATE TABLE hold (id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, class TEXT NOT NULL,
           holder TEXT NOT NULL, fence INTEGER NOT NULL, ttl_ms INTEGER, heartbeat_ms INTEGER NOT NULL,
           since INTEGER NOT NULL);
         INSERT INTO hold VALUES ('h1', 'o', 'job:1', 'scheduler', 'w', 7, NULL, 500, 1);",
    )
    .unwrap();
    // Run twice: the second run sees a file of the current version.
    prepare_tables(&db).unwrap();
    prepare_tables(&db).unwrap();
    let known = db.query_row("SELECT fence, attempt FROM hold", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    });
    assert_eq!(known.unwrap(), (7, String::new()));
    // Finding 22 of the security review: another owner may use the same id.
    db.execute("INSERT INTO hold (id, owner, name, class, holder, fence, heartbeat_ms, since) VALUES ('h1', 'p', 'job:2', 'scheduler', 'w', 8, 500, 1)", [])
        .unwrap();
    prepare_tables(&db).unwrap();
    let rows = db.query_row("SELECT count(*) FROM hold WHERE id = 'h1'", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows, Ok(2));
}

/// A database file with two connections. A row in `child` without a parent fails only at COMMIT,
/// because the constraint is deferred.
fn shared_file() -> (tempfile::TempDir, Connection, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let open = || Connection::open(folder.path().join("daemon.db")).unwrap();
    let (first, second) = (open(), open());
    first
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON;
             CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (of INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);",
        )
        .unwrap();
    (folder, first, second)
}

fn count_rows(db: &Connection) -> i64 {
    db.query_row("SELECT (SELECT count(*) FROM parent) + (SELECT count(*) FROM child)", [], |row| row.get(0))
        .unwrap()
}

type PendingWrite = Pin<Box<dyn Future<Output = Result<usize, String>> + Send>>;

/// A caller that reads the file through a second connection as soon as its task is answered.
struct WriteObserver {
    pending: Option<PendingWrite>,
    second: Connection,
    rows_seen: Option<i64>,
}

impl WriteObserver {
    fn poll_and_read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(acquire) = &mut self.pending
            && acquire.as_mut().poll(&mut context).is_ready()
        {
            self.pending = None;
            self.rows_seen = Some(count_rows(&self.second));
        }
    }
}

/// A confirmed write is visible to other connections, and so to the next daemon.
#[tokio::test]
async fn confirmed_writes_are_in_the_file() {
    let (_folder, first, second) = shared_file();
    let (ledger, writer) = StateDb::with_connection(first, None);
    let ledger = Arc::new(ledger);
    let acquire = Arc::clone(&ledger);
    let acquire = async move {
        let step = |db: &Connection| db.execute("INSERT INTO parent DEFAULT VALUES", []);
        acquire.write_confirmed(step).await
    };
    let client =
        Arc::new(Mutex::new(WriteObserver { pending: Some(Box::pin(acquire)), second, rows_seen: None }));
    client.lock().unwrap().poll_and_read();
    // The next task of the same transaction: nothing is committed yet.
    let then = Arc::clone(&client);
    ledger.write_later(move |_| then.lock().unwrap().poll_and_read());
    thread::spawn(writer);
    ledger.close().await;
    let mut client = client.lock().unwrap();
    client.poll_and_read();
    assert_eq!(client.rows_seen, Some(1));
}

/// A full disk shows up as a failing COMMIT.
#[tokio::test]
async fn failed_commits_are_not_confirmed() {
    let (_folder, first, second) = shared_file();
    let (ledger, writer) = StateDb::with_connection(first, None);
    let bad = ledger.write_confirmed(|db| db.execute("INSERT INTO child VALUES (7)", []));
    let good = ledger.write_confirmed(|db| db.execute("INSERT INTO parent DEFAULT VALUES", []));
    let write = async {
        // Both tasks are queued by now, so they share one transaction.
        thread::spawn(writer);
    };
    let (bad, good, ()) = tokio::join!(bad, good, write);
    assert!(bad.is_err() && good.is_err(), "{bad:?} {good:?}");
    assert_eq!(count_rows(&second), 0);
    // The writer continues after a failed transaction.
    let after = ledger.write_confirmed(|db| db.execute("INSERT INTO parent DEFAULT VALUES", [])).await;
    assert_eq!((after, count_rows(&second)), (Ok(1), 1));
}

/// Finding 10 of the security review: history queries ran in the transaction that confirms holds.
#[tokio::test]
async fn finding_10_a_write_is_confirmed_while_reads_wait() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let db = Arc::new(StateDb::open(Some(folder.path())).unwrap());
    let (started, has_started) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let blocked = tokio::spawn({
        let db = Arc::clone(&db);
        async move {
            db.read(move |db| {
                started.send(db.is_readonly("main")).unwrap();
                // Holds the reader until the test drops the other end.
                let _ = may_go_on.recv();
                Ok(())
            })
            .await
        }
    });
    let read_only = tokio::task::spawn_blocking(move || has_started.recv()).await.unwrap();
    assert_eq!(read_only.unwrap(), Ok(true));
    let count = |db: &Connection| db.query_row("SELECT count(*) FROM policy_change", [], |row| row.get(0));
    let waiting = tokio::spawn({
        let db = Arc::clone(&db);
        async move { db.read(count).await }
    });
    // A query whose caller has gone does not run when its turn comes.
    let has_run = Arc::new(AtomicBool::new(false));
    let gone = tokio::spawn({
        let (db, has_run) = (Arc::clone(&db), Arc::clone(&has_run));
        async move {
            let note_run = move |_: &Connection| {
                has_run.store(true, Ordering::SeqCst);
                Ok(())
            };
            db.read(note_run).await
        }
    });
    // Its own write is queued now, before the next one, so that it waits for the reader after that.
    tokio::task::yield_now().await;
    let insert = "INSERT INTO policy_change (at, class, change) VALUES (1, 'c', 'x')";
    db.write_confirmed(move |db| db.execute(insert, [])).await.unwrap();
    assert!(!blocked.is_finished() && !waiting.is_finished());
    // The writer has confirmed, so the queries are in the reader's queue; a turn each lets them get there.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    drop(go_on);
    blocked.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    // A read sees what was queued before it, although it is on another connection.
    db.write_later(move |db| drop(db.execute(insert, [])));
    assert_eq!(db.read::<i64>(count).await.unwrap(), 2);
    assert!(!has_run.load(Ordering::SeqCst));
}
