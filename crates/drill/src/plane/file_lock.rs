//! Detects by probing whether a stopped replica keeps a SQLite file locked.
//!
//! SQLite has one writer per file. A process that is stopped inside a transaction keeps the lock, so no
//! other process can write, and no takeover can happen, until it continues. The drill therefore probes the
//! files with writes all the time. While a replica is stopped, the other replicas hold the lock only briefly.
//! If all of many probes fail, the stopped replica holds the lock; one success proves that it does not.
//! Outside of stops, the same probes measure how much of the time the file is locked.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::{OsRandom, RandomExt};
use rusqlite::{Connection, OpenFlags};
use rustix::process::Pid;

// The mean pause between two probes; jittered, so that they do not synchronize with a replica.
const PROBE_PAUSE: Duration = Duration::from_millis(10);
// With fewer probes, the other replicas may have held the lock each time by chance.
const MIN_PROBES: u32 = 20;
// The limit for a process to stop: STOP takes effect after the current system call, which a disk
// may delay.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Counts of write probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProbeCount {
    pub(super) all: u32,
    /// Probes that found the file locked.
    pub(super) locked: u32,
}

/// A file that was locked for as long as a replica was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockedFile {
    /// The content of the file: `jobs` or `locks`.
    pub(super) file: &'static str,
    /// The number of probes, all of which failed.
    pub(super) tries: u32,
}

/// The files that are probed.
pub(super) struct LockWatch {
    files: Mutex<Vec<WatchedFile>>,
}

struct WatchedFile {
    name: &'static str,
    db: Connection,
    /// Probes while no replica is stopped.
    baseline: ProbeCount,
    /// Probes while a replica is stopped.
    stopped: Option<ProbeCount>,
}

impl LockWatch {
    /// Opens these files, which must exist.
    pub(super) fn open(files: Vec<(&'static str, PathBuf)>) -> anyhow::Result<Self> {
        let open = |(name, path): (&'static str, PathBuf)| {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let db = Connection::open_with_flags(&path, flags)
                // A probe must fail at once instead of waiting for the lock.
                .and_then(|db| db.busy_timeout(Duration::ZERO).map(|()| db))
                .with_context(|| format!("cannot watch {}", path.display()))?;
            Ok(WatchedFile { name, db, baseline: ProbeCount::default(), stopped: None })
        };
        Ok(Self { files: Mutex::new(files.into_iter().map(open).collect::<anyhow::Result<_>>()?) })
    }

    fn for_each_file<T>(&self, what: impl FnMut(&mut WatchedFile) -> T) -> Vec<T> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter_mut().map(what).collect()
    }

    /// Probes until dropped.
    pub(super) async fn run(&self) -> std::convert::Infallible {
        loop {
            self.for_each_file(WatchedFile::probe);
            BootClock.sleep(OsRandom.jitter(PROBE_PAUSE)).await;
        }
    }

    /// Counts separately once this process has stopped. If it does not stop in time, nothing is counted.
    pub(super) async fn begin_stop(&self, pid: Pid) {
        let end = BootClock.now() + STOP_TIMEOUT;
        while !all_threads_stopped(pid) {
            if BootClock.now() > end {
                return;
            }
            BootClock.sleep(Duration::from_millis(1)).await;
        }
        self.for_each_file(|file| file.stopped = Some(ProbeCount::default()));
    }

    /// Called before the process continues. Returns the file that it kept locked, if any.
    pub(super) fn end_stop(&self) -> Option<LockedFile> {
        let kept = |file: &mut WatchedFile| {
            let tries = file.stopped.take()?;
            (tries.all >= MIN_PROBES && tries.locked == tries.all)
                .then_some(LockedFile { file: file.name, tries: tries.all })
        };
        self.for_each_file(kept).into_iter().flatten().next()
    }

    /// The probe counts per file while no replica was stopped.
    pub(super) fn baseline(&self) -> Vec<(&'static str, ProbeCount)> {
        self.for_each_file(|file| (file.name, file.baseline))
    }
}

impl WatchedFile {
    fn probe(&mut self) {
        let locked = self.db.execute_batch("BEGIN IMMEDIATE").is_err();
        if !locked {
            let _ = self.db.execute_batch("ROLLBACK");
        }
        let tries = self.stopped.as_mut().unwrap_or(&mut self.baseline);
        tries.all += 1;
        tries.locked += u32::from(locked);
    }
}

/// Whether all threads of this process are stopped.
fn all_threads_stopped(pid: Pid) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return false;
    };
    let stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The thread's name may contain parentheses; the state follows the last one.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    tasks.flatten().all(stopped)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A file with a writer, and its watch during a stop.
    fn fixture(folder: &std::path::Path) -> (Connection, LockWatch) {
        let path = folder.join("jobs.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a)").unwrap();
        let watch = LockWatch::open(vec![("jobs", path)]).unwrap();
        watch.for_each_file(|file| file.stopped = Some(ProbeCount::default()));
        (writer, watch)
    }

    fn probe_times(watch: &LockWatch, times: u32) {
        for _ in 0..times {
            watch.for_each_file(WatchedFile::probe);
        }
    }

    #[test]
    fn a_file_that_was_locked_at_every_probe_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, watch) = fixture(folder.path());
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        probe_times(&watch, MIN_PROBES);
        let kept = LockedFile { file: "jobs", tries: MIN_PROBES };
        assert_eq!(watch.end_stop(), Some(kept));
        // Probes during a stop do not count as baseline.
        assert_eq!(watch.baseline(), [("jobs", ProbeCount::default())]);
    }

    #[test]
    fn one_successful_probe_proves_that_the_file_was_not_locked() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, watch) = fixture(folder.path());
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        probe_times(&watch, MIN_PROBES);
        writer.execute_batch("ROLLBACK").unwrap();
        probe_times(&watch, 1);
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        probe_times(&watch, MIN_PROBES);
        assert_eq!(watch.end_stop(), None);
    }

    #[test]
    fn a_few_probes_prove_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, watch) = fixture(folder.path());
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        probe_times(&watch, MIN_PROBES - 1);
        assert_eq!(watch.end_stop(), None);
        probe_times(&watch, 2);
        assert_eq!(watch.baseline(), [("jobs", ProbeCount { all: 2, locked: 2 })]);
    }

    #[test]
    fn a_running_process_is_not_stopped() {
        assert!(!all_threads_stopped(rustix::process::getpid()));
    }
}
