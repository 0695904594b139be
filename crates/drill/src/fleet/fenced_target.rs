//! The protected target: a SQLite file with one row per write, in the order of commits.
//!
//! Writes go through the leasehold-fence kit, which refuses a stale fence in the same transaction.
//! The control run bypasses the kit. The fence is then only a number in the row, and the checker
//! sees which writes the kit would have refused.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::store::StoreError;
use leasehold_core::{Fence, Name};
use leasehold_fence::{Verdict, sqlite};
use rusqlite::{Connection, OptionalExtension, params};

use crate::history::{HistoryEntry, WriteOutcome};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS entry (
    place INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, writer TEXT NOT NULL, write INTEGER NOT NULL,
    task INTEGER, fence INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS entry_task ON entry (name, task);
";

const INSERT: &str = "INSERT INTO entry (name, writer, write, task, fence) VALUES (?1, ?2, ?3, ?4, ?5)";

/// One write to the target.
#[derive(Debug, Clone)]
pub(super) struct FencedTargetWrite {
    pub(super) name: Name,
    pub(super) writer: String,
    pub(super) write: u64,
    /// The task that this write completes.
    pub(super) task: Option<u64>,
    pub(super) fence: Fence,
}

/// A connection to the target, shared by threads.
#[derive(Debug)]
pub struct FencedTarget {
    db: Mutex<Connection>,
}

impl FencedTarget {
    /// Opens the file and creates it if it does not exist.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path) -> Result<Self, super::DrillError> {
        let open = || -> Result<Connection, Box<dyn std::error::Error>> {
            let db = Connection::open(path)?;
            db.busy_timeout(Duration::from_secs(5))?;
            db.pragma_update(None, "journal_mode", "wal")?;
            // Drills kill processes, never the host, so commits need no fsync. Only their order
            // matters.
            db.pragma_update(None, "synchronous", "off")?;
            db.execute_batch(SCHEMA)?;
            sqlite::install(&db)?;
            Ok(db)
        };
        let db = open()
            .map_err(|error| super::DrillError::Store(format!("the ledger {}: {error}", path.display())))?;
        Ok(Self { db: Mutex::new(db) })
    }

    /// Opens a task: raises the highest fence to this one and reads the next task, in one
    /// transaction. With a separate read, a late write of the previous holder could still complete
    /// the same task.
    pub(super) fn open_task(&self, line: &FencedTargetWrite) -> (WriteOutcome, Option<Fence>, Option<u64>) {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let mut task = None;
        let done = sqlite::transact(&mut db, &line.name, line.fence, |tx| {
            insert(tx, line)?;
            task = next_task(tx, &line.name);
            Ok::<_, StoreError>(())
        });
        match done {
            Ok(Verdict::Admitted(_)) => (WriteOutcome::Applied, None, task),
            Ok(Verdict::Stale(stale)) => (WriteOutcome::Refused, Some(stale.newest), None),
            Err(_) => (WriteOutcome::Unknown, None, None),
        }
    }

    /// The first task of this name that is not complete.
    pub(super) fn next_task(&self, name: &Name) -> Option<u64> {
        next_task(&self.db.lock().unwrap_or_else(PoisonError::into_inner), name)
    }

    /// Writes if the fence is not stale. A refusal returns the newest fence.
    pub(super) fn write(&self, line: &FencedTargetWrite) -> (WriteOutcome, Option<Fence>) {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let done = sqlite::transact(&mut db, &line.name, line.fence, |tx| insert(tx, line));
        match done {
            Ok(Verdict::Admitted(_)) => (WriteOutcome::Applied, None),
            Ok(Verdict::Stale(stale)) => (WriteOutcome::Refused, Some(stale.newest)),
            Err(_) => (WriteOutcome::Unknown, None),
        }
    }

    /// Writes without a check of the fence, for the control run.
    pub(super) fn write_unfenced(&self, line: &FencedTargetWrite) -> WriteOutcome {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        match insert(&db, line) {
            Ok(_) => WriteOutcome::Applied,
            Err(_) => WriteOutcome::Unknown,
        }
    }

    /// Deletes all rows except the last of each name and the last that completed a task. Later rows
    /// are compared with those.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn drop_old_rows(&self) -> Result<(), super::DrillError> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let done = db.execute_batch(
            "DELETE FROM entry WHERE place NOT IN (SELECT max(place) FROM entry GROUP BY name)
             AND place NOT IN (SELECT max(place) FROM entry WHERE task IS NOT NULL GROUP BY name)",
        );
        done.map_err(|error| super::DrillError::Store(format!("the target cannot be shortened: {error}")))
    }

    /// Returns all rows, in the order of commits.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rows(&self) -> Result<Vec<HistoryEntry>, super::DrillError> {
        let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
        let read = || -> rusqlite::Result<Vec<HistoryEntry>> {
            let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rows =
                db.prepare("SELECT place, name, writer, write, task, fence FROM entry ORDER BY place")?;
            rows.query_map([], |row| {
                Ok(HistoryEntry::Applied {
                    place: unsigned(row.get(0)?),
                    name: row.get(1)?,
                    writer: row.get(2)?,
                    write: unsigned(row.get(3)?),
                    task: row.get::<_, Option<i64>>(4)?.map(unsigned),
                    fence: row.get::<_, Option<i64>>(5)?.map(unsigned).and_then(Fence::new),
                })
            })?
            .collect()
        };
        read().map_err(|error| super::DrillError::Store(format!("the target cannot be read: {error}")))
    }
}

fn next_task(db: &Connection, name: &Name) -> Option<u64> {
    let last: Option<Option<i64>> = db
        .query_row("SELECT max(task) FROM entry WHERE name = ?1", [name.as_str()], |row| row.get(0))
        .optional()
        .ok()?;
    u64::try_from(last.flatten().unwrap_or(0)).ok().map(|last| last + 1)
}

fn insert(db: &Connection, line: &FencedTargetWrite) -> Result<usize, StoreError> {
    let write = line.write.cast_signed();
    let task = line.task.map(u64::cast_signed);
    let values = params![line.name.as_str(), line.writer, write, task, line.fence.get().cast_signed()];
    db.execute(INSERT, values).map_err(|error| {
        StoreError::unknown(
            leasehold_core::store::StoreErrorKind::Unreachable,
            "the ledger did not answer clearly",
        )
        .with_source(error)
    })
}
