//! What the daemon's file promises.

use std::pin::Pin;
use std::task::{Context, Waker};

use super::*;

/// A daemon of this version finds the file of an earlier one, with a hold in it.
#[test]
fn a_file_of_an_earlier_version_is_taken_over() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(
        "CREATE TABLE hold (id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, class TEXT NOT NULL,
           holder TEXT NOT NULL, fence INTEGER NOT NULL, ttl_ms INTEGER, heartbeat_ms INTEGER NOT NULL,
           since INTEGER NOT NULL);
         INSERT INTO hold VALUES ('h1', 'o', 'job:1', 'scheduler', 'w', 7, NULL, 500, 1);",
    )
    .unwrap();
    // Twice: it is also a file of this version then.
    prepare_tables(&db).unwrap();
    prepare_tables(&db).unwrap();
    let known = db.query_row("SELECT fence, attempt FROM hold", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    });
    assert_eq!(known.unwrap(), (7, String::new()));
}

/// A file in a folder, and two connections to it. What is put into `child` without a parent shows when it is committed.
fn file() -> (tempfile::TempDir, Connection, Connection) {
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

fn rows(db: &Connection) -> i64 {
    db.query_row(
        "SELECT (SELECT count(*) FROM parent) + (SELECT count(*) FROM child)",
        [],
        |row| row.get(0),
    )
    .unwrap()
}

type Asking = Pin<Box<dyn Future<Output = Result<usize, String>> + Send>>;

/// Someone who has asked, and looks into the file as soon as there is an answer.
struct Asker {
    asking: Option<Asking>,
    second: Connection,
    seen: Option<i64>,
}

impl Asker {
    fn look(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(asking) = &mut self.asking
            && asking.as_mut().poll(&mut context).is_ready()
        {
            self.asking = None;
            self.seen = Some(rows(&self.second));
        }
    }
}

/// Whoever is answered can rely on it: from then on everybody sees it, and so does the next life.
#[tokio::test]
async fn what_is_answered_is_in_the_file() {
    let (_folder, first, second) = file();
    let (ledger, writer) = Ledger::on(first, None);
    let ledger = Arc::new(ledger);
    let asking = Arc::clone(&ledger);
    let asking = async move {
        let step = |db: &Connection| db.execute("INSERT INTO parent DEFAULT VALUES", []);
        asking.ask(step).await
    };
    let asker = Arc::new(Mutex::new(Asker {
        asking: Some(Box::pin(asking)),
        second,
        seen: None,
    }));
    asker.lock().unwrap().look();
    // The next step of the same transaction: nothing is written yet that was.
    let then = Arc::clone(&asker);
    ledger.note(move |_| then.lock().unwrap().look());
    thread::spawn(writer);
    ledger.close().await;
    let mut asker = asker.lock().unwrap();
    asker.look();
    assert_eq!(asker.seen, Some(1));
}

/// A disk that is full says so when a transaction ends.
#[tokio::test]
async fn what_cannot_be_committed_is_not_answered_as_done() {
    let (_folder, first, second) = file();
    let (ledger, writer) = Ledger::on(first, None);
    let bad = ledger.ask(|db| db.execute("INSERT INTO child VALUES (7)", []));
    let good = ledger.ask(|db| db.execute("INSERT INTO parent DEFAULT VALUES", []));
    let write = async {
        // Both wait by now: they share a transaction.
        thread::spawn(writer);
    };
    let (bad, good, ()) = tokio::join!(bad, good, write);
    assert!(bad.is_err() && good.is_err(), "{bad:?} {good:?}");
    assert_eq!(rows(&second), 0);
    // And it goes on.
    let after = ledger
        .ask(|db| db.execute("INSERT INTO parent DEFAULT VALUES", []))
        .await;
    assert_eq!((after, rows(&second)), (Ok(1), 1));
}
