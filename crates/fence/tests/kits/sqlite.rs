//! Marks in SQLite, inside the caller's own transaction.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::error::Error;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::fences::{
    FenceSource, HOSTILE_NAMES, Model, assert_never_goes_back, fence, name, steps, verdict_as_result,
};
use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_fence::{Verdict, sqlite};
use proptest::prelude::*;
use rusqlite::{Connection, TransactionBehavior, params};

/// A connection with the recommended settings.
fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    // These tests do not cover power loss, and the disk is shared.
    db.pragma_update(None, "synchronous", "OFF").unwrap();
    db
}

/// A database with the marks, and a log whose ids give the order of the writes.
fn fresh() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.db");
    let db = open(&path);
    sqlite::install(&db).unwrap();
    db.execute_batch("CREATE TABLE log (id INTEGER PRIMARY KEY AUTOINCREMENT, fence INTEGER NOT NULL)")
        .unwrap();
    (folder, path)
}

fn logged(db: &Connection) -> Vec<u64> {
    let mut rows = db.prepare("SELECT fence FROM log ORDER BY id").unwrap();
    rows.query_map([], |row| row.get::<_, i64>(0))
        .unwrap()
        .map(|number| u64::try_from(number.unwrap()).unwrap())
        .collect()
}

/// Checks and writes in one transaction.
fn write(db: &mut Connection, resource: &str, number: u64) -> Verdict {
    sqlite::transact(db, &name(resource), fence(number), |tx| {
        tx.execute("INSERT INTO log (fence) VALUES (?1)", [number as i64])?;
        Ok::<_, Box<dyn Error>>(())
    })
    .unwrap()
}

#[test]
fn older_is_refused_equal_and_newer_are_admitted() {
    let (_folder, path) = fresh();
    let mut db = open(&path);
    for number in [5, 5, 9] {
        assert!(write(&mut db, "job:42", number).is_admitted(), "{number}");
    }
    assert_eq!(verdict_as_result(write(&mut db, "job:42", 8), "job:42", fence(8)), Err(fence(9)));
    assert!(write(&mut db, "job:43", 1).is_admitted(), "another resource has its own mark");
    assert_eq!(logged(&db), [5, 5, 9, 1]);
    assert_eq!(sqlite::newest(&db, &name("job:42")).unwrap(), Some(fence(9)));
    assert_eq!(sqlite::newest(&db, &name("job:44")).unwrap(), None);
}

#[test]
fn admit_outside_a_transaction_is_an_error() {
    let (_folder, path) = fresh();
    let db = open(&path);
    let failure = sqlite::admit(&db, &name("job:42"), fence(5)).unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Misconfigured, false));
    assert!(failure.to_string().contains("BEGIN IMMEDIATE"), "{failure}");
    assert_eq!(sqlite::newest(&db, &name("job:42")).unwrap(), None);
}

#[test]
fn a_rolled_back_write_does_not_raise_the_mark() {
    let (_folder, path) = fresh();
    let mut db = open(&path);
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    assert!(sqlite::admit(&tx, &name("job:42"), fence(9)).unwrap().is_admitted());
    drop(tx);
    assert!(write(&mut db, "job:42", 5).is_admitted());

    // A savepoint protects like a transaction, and is rolled back like one.
    let mut outer = db.transaction().unwrap();
    let inner = outer.savepoint().unwrap();
    assert!(sqlite::admit(&inner, &name("job:42"), fence(7)).unwrap().is_admitted());
    drop(inner);
    outer.commit().unwrap();
    assert_eq!(sqlite::newest(&db, &name("job:42")).unwrap(), Some(fence(5)));
}

/// Invariant I9: the error of the work comes back unchanged, and nothing of the work stays.
#[test]
fn failing_work_is_rolled_back_and_keeps_its_error() {
    let (_folder, path) = fresh();
    let mut db = open(&path);
    let error = sqlite::transact(&mut db, &name("job:42"), fence(9), |tx| {
        tx.execute("INSERT INTO log (fence) VALUES (9)", [])?;
        Err::<(), Box<dyn Error>>("out of paper".into())
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "out of paper");
    assert_eq!(logged(&db), [0; 0]);
    assert!(write(&mut db, "job:42", 5).is_admitted());
}

/// Work that commits by itself has left the protection. That must not look like a success.
#[test]
fn work_that_ends_the_transaction_is_detected() {
    let (_folder, path) = fresh();
    let mut db = open(&path);
    let failure = sqlite::transact(&mut db, &name("job:42"), fence(9), |tx| {
        tx.execute_batch("COMMIT; INSERT INTO log (fence) VALUES (9)")
            .map_err(|error| StoreError::not_done(StoreErrorKind::Corrupt, error.to_string()))
    })
    .unwrap_err();
    assert!(failure.unknown && failure.to_string().contains("ended the transaction"), "{failure}");
}

/// The check itself takes the write lock, so a second writer cannot come between check and commit,
/// even if the transaction began without IMMEDIATE.
#[test]
fn a_second_writer_waits_for_the_first() {
    let (_folder, path) = fresh();
    let (mut first, mut second) = (open(&path), open(&path));
    second.busy_timeout(Duration::ZERO).unwrap();

    let tx = first.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    assert!(sqlite::admit(&tx, &name("job:42"), fence(5)).unwrap().is_admitted());
    let failure =
        sqlite::transact(&mut second, &name("job:42"), fence(9), |_| Ok::<_, StoreError>(())).unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false), "{failure}");
    tx.commit().unwrap();

    // A refusal holds the lock too: it reports the mark that it was compared with.
    let tx = first.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    assert!(!sqlite::admit(&tx, &name("job:42"), fence(4)).unwrap().is_admitted());
    let failure =
        sqlite::transact(&mut second, &name("job:42"), fence(9), |_| Ok::<_, StoreError>(())).unwrap_err();
    assert_eq!(failure.kind, StoreErrorKind::Overloaded, "{failure}");
}

/// A deferred transaction that has read an old snapshot is neither admitted
/// (its view is old) nor refused.
#[test]
fn transaction_that_read_too_early_gets_an_error() {
    let (_folder, path) = fresh();
    let (mut early, mut other) = (open(&path), open(&path));
    let tx = early.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    assert_eq!(logged(&tx), [0; 0]);
    assert!(write(&mut other, "job:42", 5).is_admitted());

    let failure = sqlite::admit(&tx, &name("job:42"), fence(9)).unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false), "{failure}");
    assert!(failure.to_string().contains("BEGIN IMMEDIATE"), "{failure}");
    drop(tx);
    assert!(write(&mut early, "job:42", 9).is_admitted(), "beginning again helps");
    assert_eq!(logged(&early), [5, 9]);
}

#[test]
fn racing_connections_never_go_back() {
    let (_folder, path) = fresh();
    let (front, start) = (FenceSource::default(), Barrier::new(8));
    thread::scope(|scope| {
        for seed in 0..8 {
            let (path, front, start) = (&path, &front, &start);
            scope.spawn(move || {
                let mut db = open(path);
                start.wait();
                for (at, fence) in front.offers(seed, 40).enumerate() {
                    // Both ways to take the write lock, and some transactions that roll back.
                    let behavior = [TransactionBehavior::Immediate, TransactionBehavior::Deferred][at % 2];
                    let tx = db.transaction_with_behavior(behavior).unwrap();
                    if sqlite::admit(&tx, &name("job:42"), fence).unwrap().is_admitted() {
                        tx.execute("INSERT INTO log (fence) VALUES (?1)", [fence.get() as i64]).unwrap();
                        if at % 7 != 0 {
                            tx.commit().unwrap();
                        }
                    }
                }
            });
        }
    });
    let db = open(&path);
    let applied = logged(&db);
    assert_never_goes_back(&applied);
    let newest = sqlite::newest(&db, &name("job:42")).unwrap().unwrap();
    assert_eq!(Some(&newest.get()), applied.last());
}

#[test]
fn hostile_names_stay_data() {
    let (_folder, path) = fresh();
    let mut db = open(&path);
    for (at, text) in HOSTILE_NAMES.iter().enumerate() {
        assert!(write(&mut db, text, 100 - at as u64).is_admitted(), "{text}");
        assert!(!write(&mut db, text, 1).is_admitted(), "{text}");
    }
    let kept: i64 = db.query_row("SELECT count(*) FROM leasehold_fences", [], |row| row.get(0)).unwrap();
    assert_eq!(kept as usize, HOSTILE_NAMES.len());
}

#[test]
fn the_table_guards_itself() {
    let (_folder, path) = fresh();
    let mut db = open(&path);
    sqlite::install(&db).unwrap();
    assert!(write(&mut db, "job:42", 9).is_admitted());
    for tampering in [
        "UPDATE leasehold_fences SET fence = 8",
        "UPDATE leasehold_fences SET fence = 9007199254740992",
        "INSERT INTO leasehold_fences VALUES ('x', 0)",
        "INSERT INTO leasehold_fences VALUES ('x', 'seven')",
        "INSERT INTO leasehold_fences VALUES (NULL, 7)",
    ] {
        assert!(db.execute(tampering, []).is_err(), "{tampering}");
    }
    // A temporary table of the same name would otherwise shadow the real one.
    db.execute_batch("CREATE TEMP TABLE leasehold_fences (resource TEXT PRIMARY KEY, fence INTEGER)")
        .unwrap();
    assert!(!write(&mut db, "job:42", 8).is_admitted());

    assert!(sqlite::forget(&db, &name("job:42")).unwrap());
    assert!(!sqlite::forget(&db, &name("job:42")).unwrap());
    assert!(write(&mut db, "job:42", 8).is_admitted());
}

#[test]
fn failures_say_what_to_do() {
    let (_folder, path) = fresh();
    let mut bare = Connection::open_in_memory().unwrap();
    let failure = sqlite::transact(&mut bare, &name("a"), fence(1), |_| Ok::<_, StoreError>(())).unwrap_err();
    assert!(
        failure.kind == StoreErrorKind::Misconfigured && failure.to_string().contains("`install`"),
        "{failure}"
    );

    let mut reader = Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let tx = reader.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    let failure = sqlite::admit(&tx, &name("a"), fence(1)).unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::ReadOnly, false), "{failure}");
}

/// The documented pattern without the table: a column of the row is the mark.
#[test]
fn row_by_row_statements_refuse_older_fences() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch("CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT, fence INTEGER NOT NULL) STRICT")
        .unwrap();
    let upsert = "INSERT INTO job (id, state, fence) VALUES (?1, ?2, ?3)
        ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence = excluded.fence WHERE excluded.fence >= fence";
    let update = "UPDATE job SET state = ?2, fence = ?3 WHERE id = ?1 AND fence <= ?3";
    for statement in [upsert, update] {
        let done = |state: &str, fence: i64| db.execute(statement, params![42, state, fence]).unwrap();
        if statement == upsert {
            assert_eq!(done("made", 5), 1);
        }
        assert_eq!(done("same holder", 5), 1);
        assert_eq!(done("older holder", 4), 0);
    }
    assert_eq!(db.execute(update, params![42, "newer holder", 9]).unwrap(), 1);
    assert_eq!(db.execute(upsert, params![42, "older holder", 5]).unwrap(), 0);
    let (state, mark): (String, i64) =
        db.query_row("SELECT state, fence FROM job", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!((state.as_str(), mark), ("newer holder", 9));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_the_model(steps in steps()) {
        let mut db = Connection::open_in_memory().unwrap();
        sqlite::install(&db).unwrap();
        let mut model = Model::default();
        for step in &steps {
            let resource = format!("job:{}", step.resource);
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let verdict = sqlite::admit(&tx, &name(&resource), step.fence).unwrap();
            if !step.undone {
                tx.commit().unwrap();
            }
            prop_assert_eq!(verdict_as_result(verdict, &resource, step.fence), model.admit(step, !step.undone));
        }
        for resource in 0..3 {
            prop_assert_eq!(sqlite::newest(&db, &name(&format!("job:{resource}"))).unwrap(), model.newest(resource));
        }
    }
}
