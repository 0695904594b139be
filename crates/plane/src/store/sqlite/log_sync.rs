//! Syncs the write-ahead log to the disk after the write lock is released.
//!
//! `synchronous=FULL` syncs inside the commit, while all other writers wait: under load the file was
//! locked nine tenths of the time, and a process that is stopped there keeps it locked. With `NORMAL`
//! the commit only hands its frames to the kernel; here the log is synced afterwards, before the step
//! is answered. SQLite reads the log back in order up to the first incomplete frame. So a synced step
//! implies that all steps before it are synced, those of other processes included. Steps that commit
//! during a sync share the next one.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold_core::store::{StoreError, StoreErrorKind};
use rusqlite::Connection;

use super::store_error;

/// Syncs the log of one connection.
pub(super) struct LogSync {
    sync: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    /// How many steps were committed, that is handed to the kernel.
    committed: AtomicU64,
    /// How many of them are on the disk; `None` once a sync has failed.
    synced: Mutex<Option<u64>>,
}

impl LogSync {
    // The connection must have read or written before: from then on its log stays the same file.
    pub(super) fn for_connection(db: &Connection) -> Result<Self, StoreError> {
        // The path as SQLite knows it, with symbolic links resolved.
        let path = format!("{}-wal", db.path().unwrap_or_default());
        let log = File::open(&path).map_err(|error| {
            StoreError::not_done(
                StoreErrorKind::Misconfigured,
                format!("cannot open the plane's log {path}: {error}"),
            )
        })?;
        // SQLite itself then syncs at checkpoints only, which block no writer.
        db.pragma_update(None, "synchronous", "NORMAL").map_err(store_error)?;
        Ok(Self::with_sync(move || log.sync_data()))
    }

    pub(super) fn with_sync(sync: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self { sync: Box::new(sync), committed: AtomicU64::new(0), synced: Mutex::new(Some(0)) }
    }

    /// Counts a committed step. Returns the number to wait for.
    pub(super) fn count_commit(&self) -> u64 {
        self.committed.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until that step is on the disk.
    ///
    /// # Errors
    /// Unknown whether the step is on the disk. The kernel reports a failed sync once and then drops the
    /// pages it could not write, so no later sync would prove anything either.
    pub(super) fn wait_until_synced(&self, step: u64) -> Result<(), StoreError> {
        let mut kept = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let so_far = kept.ok_or_else(|| sync_error("it failed before; restart the replica"))?;
        if so_far >= step {
            return Ok(());
        }
        // Read before the sync: a step committed during the sync is not covered by it.
        let all = self.committed.load(Ordering::Acquire);
        *kept = match (self.sync)() {
            Ok(()) => Some(all),
            Err(error) => {
                *kept = None;
                return Err(sync_error(&error.to_string()));
            }
        };
        Ok(())
    }
}

fn sync_error(why: &str) -> StoreError {
    StoreError::unknown(
        StoreErrorKind::Unreachable,
        format!("the disk did not confirm the plane's log: {why}"),
    )
}

impl fmt::Debug for LogSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogSync").field("committed", &self.committed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn steps_during_a_sync_share_the_next_one() {
        let (began, first) = mpsc::channel();
        let (go, may) = mpsc::channel::<()>();
        let may = Mutex::new(may);
        let disk = Arc::new(LogSync::with_sync(move || {
            began.send(()).unwrap();
            may.lock().unwrap().recv().unwrap();
            Ok(())
        }));
        let waiter = |step| {
            let disk = Arc::clone(&disk);
            std::thread::spawn(move || disk.wait_until_synced(step).unwrap())
        };
        let one = waiter(disk.count_commit());
        first.recv().unwrap();
        // Committed after the sync began, so that sync does not cover them.
        let others: Vec<_> = (0..3).map(|_| waiter(disk.count_commit())).collect();
        go.send(()).unwrap();
        one.join().unwrap();
        go.send(()).unwrap();
        for other in others {
            other.join().unwrap();
        }
        // One sync for the first step, one for the other three.
        assert_eq!(1 + first.try_iter().count(), 2);
    }

    #[test]
    fn after_a_failed_sync_no_step_counts_as_durable() {
        let fails = Arc::new(Mutex::new(vec![true]));
        let disk = LogSync::with_sync(move || match fails.lock().unwrap().pop() {
            Some(true) => Err(io::Error::other("no room")),
            _ => Ok(()),
        });
        let (one, two) = (disk.count_commit(), disk.count_commit());
        for step in [one, two] {
            let failure = disk.wait_until_synced(step).unwrap_err();
            assert!(failure.unknown, "{failure}");
        }
    }
}
