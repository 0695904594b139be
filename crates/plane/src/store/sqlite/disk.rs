//! The disk, waited for after the write lock is given back.
//!
//! `synchronous=FULL` waits for the disk inside the commit, and everybody else for it: under load the file was locked nine
//! tenths of the time, and a process that is stopped there keeps it locked. With `NORMAL` the commit only hands its
//! frames to the kernel; here the log is put on the disk afterwards, before the step is answered. The log is read back in
//! order up to the first frame that is not whole, so who has waited has waited for everything before it too, other
//! processes' steps included. Steps that come while the disk is busy share the next wait.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold_core::store::{Cause, Failure};
use rusqlite::Connection;

use super::failure;

/// The disk under one connection's log.
pub(super) struct Disk {
    sync: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    /// Steps that were handed to the kernel, counted.
    handed: AtomicU64,
    /// How many of them are on the disk; `None` once it has failed.
    kept: Mutex<Option<u64>>,
}

impl Disk {
    /// That of a connection which has written or read already: from then on its log stays the same file.
    pub(super) fn of(db: &Connection) -> Result<Self, Failure> {
        // As SQLite knows it, with symbolic links followed.
        let path = format!("{}-wal", db.path().unwrap_or_default());
        let log = File::open(&path).map_err(|error| {
            Failure::not_done(
                Cause::Misconfigured,
                format!("cannot open the plane's log {path}: {error}"),
            )
        })?;
        // SQLite itself then waits at checkpoints only, which lock nobody out.
        db.pragma_update(None, "synchronous", "NORMAL").map_err(failure)?;
        Ok(Self::with(move || log.sync_data()))
    }

    /// One that is synced like this.
    pub(super) fn with(sync: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self {
            sync: Box::new(sync),
            handed: AtomicU64::new(0),
            kept: Mutex::new(Some(0)),
        }
    }

    /// A step was committed. Answers what to wait for.
    pub(super) fn handed(&self) -> u64 {
        self.handed.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until that step is on the disk.
    ///
    /// # Errors
    /// Nobody knows whether it is: the kernel reports a failure once and then forgets what it could not write, so no later
    /// wait would prove anything either.
    pub(super) fn wait(&self, step: u64) -> Result<(), Failure> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let so_far = kept.ok_or_else(|| broken("it failed before; start the replica anew"))?;
        if so_far >= step {
            return Ok(());
        }
        let all = self.handed.load(Ordering::Acquire);
        *kept = match (self.sync)() {
            Ok(()) => Some(all),
            Err(error) => {
                *kept = None;
                return Err(broken(&error.to_string()));
            }
        };
        Ok(())
    }
}

fn broken(why: &str) -> Failure {
    Failure::unknown(
        Cause::Unreachable,
        format!("the disk did not confirm the plane's log: {why}"),
    )
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("handed", &self.handed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn steps_that_came_meanwhile_share_a_wait() {
        let (began, first) = mpsc::channel();
        let (go, may) = mpsc::channel::<()>();
        let may = Mutex::new(may);
        let disk = Arc::new(Disk::with(move || {
            began.send(()).unwrap();
            may.lock().unwrap().recv().unwrap();
            Ok(())
        }));
        let waiter = |step| {
            let disk = Arc::clone(&disk);
            std::thread::spawn(move || disk.wait(step).unwrap())
        };
        let one = waiter(disk.handed());
        first.recv().unwrap();
        // Handed over after the wait began: it is not proven by it.
        let others: Vec<_> = (0..3).map(|_| waiter(disk.handed())).collect();
        go.send(()).unwrap();
        one.join().unwrap();
        go.send(()).unwrap();
        for other in others {
            other.join().unwrap();
        }
        // The first one's, and one for the three.
        assert_eq!(1 + first.try_iter().count(), 2);
    }

    #[test]
    fn a_disk_that_failed_once_proves_nothing_any_more() {
        let fails = Arc::new(Mutex::new(vec![true]));
        let disk = Disk::with(move || match fails.lock().unwrap().pop() {
            Some(true) => Err(io::Error::other("no room")),
            _ => Ok(()),
        });
        let (one, two) = (disk.handed(), disk.handed());
        for step in [one, two] {
            let failure = disk.wait(step).unwrap_err();
            assert!(failure.unknown, "{failure}");
        }
    }
}
