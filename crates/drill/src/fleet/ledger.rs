//! The protected target: a SQLite file with one row per write, in the order of commits.
//!
//! Writes go through leasehold-fence's kit, so a stale fence is refused in the same transaction. The control run writes past
//! it: the fence is then only a number in the row, from which the checker sees what enforcement would have refused.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::store::Failure;
use leasehold_core::{Fence, Name};
use leasehold_fence::{Verdict, sqlite};
use rusqlite::{Connection, OptionalExtension, params};

use crate::history::{Entry, Wrote};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS entry (
    place INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, writer TEXT NOT NULL, write INTEGER NOT NULL,
    task INTEGER, fence INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS entry_task ON entry (name, task);
";

const INSERT: &str = "INSERT INTO entry (name, writer, write, task, fence) VALUES (?1, ?2, ?3, ?4, ?5)";

/// One write.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: Name,
    pub(super) writer: String,
    pub(super) write: u64,
    /// The task that it ends.
    pub(super) task: Option<u64>,
    pub(super) fence: Fence,
}

/// A connection to the ledger, shared by threads.
#[derive(Debug)]
pub struct Ledger {
    db: Mutex<Connection>,
}

impl Ledger {
    /// Opens it, and makes it if it is not there.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path) -> Result<Self, super::Error> {
        let open = || -> Result<Connection, Box<dyn std::error::Error>> {
            let db = Connection::open(path)?;
            db.busy_timeout(Duration::from_secs(5))?;
            db.pragma_update(None, "journal_mode", "wal")?;
            // Processes are killed here, never the host: the order of commits is what counts.
            db.pragma_update(None, "synchronous", "off")?;
            db.execute_batch(SCHEMA)?;
            sqlite::install(&db)?;
            Ok(db)
        };
        let db =
            open().map_err(|error| super::Error::Store(format!("the ledger {}: {error}", path.display())))?;
        Ok(Self { db: Mutex::new(db) })
    }

    /// Opens a task: raises the mark to this fence and reads which task is next, in one transaction. A writer that only
    /// read could be overtaken by a late write of its predecessor that ends the very same task.
    pub(super) fn open_task(&self, line: &Line) -> (Wrote, Option<Fence>, Option<u64>) {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let mut task = None;
        let done = sqlite::transact(&mut db, &line.name, line.fence, |tx| {
            insert(tx, line)?;
            task = next_task(tx, &line.name);
            Ok::<_, Failure>(())
        });
        match done {
            Ok(Verdict::Admitted(_)) => (Wrote::Applied, None, task),
            Ok(Verdict::Stale(stale)) => (Wrote::Refused, Some(stale.newest), None),
            Err(_) => (Wrote::Unknown, None, None),
        }
    }

    /// The first task of this name that has not been ended.
    pub(super) fn next_task(&self, name: &Name) -> Option<u64> {
        next_task(&self.db.lock().unwrap_or_else(PoisonError::into_inner), name)
    }

    /// Writes if the fence is not stale; a refusal comes with the newest one.
    pub(super) fn write(&self, line: &Line) -> (Wrote, Option<Fence>) {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let done = sqlite::transact(&mut db, &line.name, line.fence, |tx| insert(tx, line));
        match done {
            Ok(Verdict::Admitted(_)) => (Wrote::Applied, None),
            Ok(Verdict::Stale(stale)) => (Wrote::Refused, Some(stale.newest)),
            Err(_) => (Wrote::Unknown, None),
        }
    }

    /// Writes whatever the fence: the control run's target.
    pub(super) fn write_unfenced(&self, line: &Line) -> Wrote {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        match insert(&db, line) {
            Ok(_) => Wrote::Applied,
            Err(_) => Wrote::Unknown,
        }
    }

    /// Forgets all rows but the last of each name and the last that ended a task: what later rows are compared with.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&self) -> Result<(), super::Error> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let done = db.execute_batch(
            "DELETE FROM entry WHERE place NOT IN (SELECT max(place) FROM entry GROUP BY name)
             AND place NOT IN (SELECT max(place) FROM entry WHERE task IS NOT NULL GROUP BY name)",
        );
        done.map_err(|error| super::Error::Store(format!("the ledger cannot be shortened: {error}")))
    }

    /// All rows, in the order of commits.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, super::Error> {
        let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rows =
                db.prepare("SELECT place, name, writer, write, task, fence FROM entry ORDER BY place")?;
            rows.query_map([], |row| {
                Ok(Entry::Applied {
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
        read().map_err(|error| super::Error::Store(format!("the ledger cannot be read: {error}")))
    }
}

fn next_task(db: &Connection, name: &Name) -> Option<u64> {
    let last: Option<Option<i64>> = db
        .query_row(
            "SELECT max(task) FROM entry WHERE name = ?1",
            [name.as_str()],
            |row| row.get(0),
        )
        .optional()
        .ok()?;
    u64::try_from(last.flatten().unwrap_or(0))
        .ok()
        .map(|last| last + 1)
}

fn insert(db: &Connection, line: &Line) -> Result<usize, Failure> {
    let write = line.write.cast_signed();
    let task = line.task.map(u64::cast_signed);
    let values = params![
        line.name.as_str(),
        line.writer,
        write,
        task,
        line.fence.get().cast_signed()
    ];
    db.execute(INSERT, values).map_err(|error| {
        Failure::unknown(
            leasehold_core::store::Cause::Unreachable,
            "the ledger did not answer clearly",
        )
        .with_source(error)
    })
}
