//! The end of the audit log, kept outside the log in the daemon's database.
//!
//! Without it, lines removed from the end of the log would not be missed. The head is saved only
//! after its line is on the disk: after a crash the log may be ahead of the head, never behind.

use std::fs::File;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, Waker};

use leasehold_core::atomic_file::sync_folder;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::state::state_db::StateDb;

/// The `prev` of the first line of a log.
pub(super) const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line of the log that is known to be in it, and with it all lines before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainHead {
    /// The number of the line's segment.
    pub(super) segment: u64,
    /// The line's number, counted over all segments.
    pub(super) seq: u64,
    /// The line's MAC; the next line's `prev`.
    pub(super) mac: String,
}

impl ChainHead {
    /// The head of a log without lines.
    pub(super) fn empty() -> Self {
        Self { segment: 0, seq: 0, mac: GENESIS.to_owned() }
    }
}

/// Reads the saved head.
pub(super) fn load(db: &Connection) -> rusqlite::Result<Option<ChainHead>> {
    db.query_row("SELECT segment, seq, mac FROM audit_head", [], |row| {
        let number = |at| row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(ChainHead { segment: number(0)?, seq: number(1)?, mac: row.get(2)? })
    })
    .optional()
}

/// Saves the head in place of the one before.
pub(super) fn save(db: &Connection, head: &ChainHead) -> rusqlite::Result<()> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    db.execute(
        "INSERT OR REPLACE INTO audit_head (id, segment, seq, mac) VALUES (1, ?1, ?2, ?3)",
        params![number(head.segment), number(head.seq), head.mac],
    )
    .map(|_| ())
}

/// Reads the saved head from the database of a daemon that may be running.
///
/// # Errors
/// There is no database, or it has no head.
pub(super) fn load_from_file(path: &Path) -> Result<ChainHead, String> {
    let describe = |why: &str| {
        format!(
            "{}: {why}; without the head kept there, lines removed from the end would not be missed (the next start of the daemon records a missing head as damage)",
            path.display()
        )
    };
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|db| db.busy_timeout(std::time::Duration::from_secs(2)).map(|()| db))
        .map_err(|error| describe(&error.to_string()))?;
    let head = load(&db).map_err(|error| describe(&error.to_string()))?;
    head.ok_or_else(|| describe("has no head of the audit log"))
}

/// Makes what is committed durable: a commit alone may be lost at a power loss.
pub(super) fn sync_file(folder: &Path) -> io::Result<()> {
    let path = folder.join("daemon.db");
    for path in [folder.join("daemon.db-wal"), path.clone()] {
        match File::open(path) {
            Ok(file) => file.sync_all()?,
            // Without a write-ahead log, the commit itself is durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    sync_folder(&path)
}

/// A save that is not committed yet.
type PendingSave = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Saves heads in the daemon's database.
pub(super) struct HeadSaver {
    /// Weak: the log's thread must not keep the state folder locked after the daemon is gone.
    state_db: Weak<StateDb>,
    pending: Option<PendingSave>,
}

impl HeadSaver {
    pub(super) fn new(state_db: Weak<StateDb>) -> Self {
        Self { state_db, pending: None }
    }

    /// Queues the save. False if the database is closed: the next start continues with the head
    /// before, which is in the log too.
    pub(super) fn save_later(&mut self, head: ChainHead) -> bool {
        let state_db = self.state_db.upgrade().filter(|state_db| !state_db.is_closed());
        self.pending = state_db
            .map(|state_db| -> PendingSave { Box::pin(state_db.write_confirmed(move |db| save(db, &head))) });
        self.pending.is_some()
    }

    /// What became of the last save; `None` while it is not known.
    pub(super) fn take_result(&mut self) -> Option<Result<(), String>> {
        // The thread polls when it wakes up anyway, so no waker is needed.
        let mut context = Context::from_waker(Waker::noop());
        match self.pending.as_mut()?.as_mut().poll(&mut context) {
            Poll::Ready(result) => {
                self.pending = None;
                Some(result)
            }
            Poll::Pending => None,
        }
    }
}
