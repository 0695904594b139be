//! Who keeps a SQLite file locked: seen, not assumed.
//!
//! SQLite has one writer a file, and a process that is stopped inside a write cannot give the lock back: nobody writes
//! until it goes on, and no takeover can happen before. So the drill tries to write all the time. While a replica is stopped
//! the others have the lock for a moment each; if not one of many tries gets it, the stopped one has it, and a single try
//! that does proves that it has not. Outside of stops the same tries say which share of the time the lock is taken.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use leasehold::clock::{BootClock, Clock, ClockExt};
use leasehold::leasehold_core::rng::{OsRandom, RandomExt};
use rusqlite::{Connection, OpenFlags};
use rustix::process::Pid;

/// Between two tries, jittered, so that they keep step with nobody.
const PAUSE: Duration = Duration::from_millis(10);
/// Fewer tries than this prove nothing.
const ENOUGH: u32 = 20;
/// A signal takes effect when a system call has ended, which the disk may delay.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tries to write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tries {
    pub(super) all: u32,
    /// Of these, how many found the file locked.
    pub(super) locked: u32,
}

/// A file that was locked for as long as a replica was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// Whose file: `jobs` or `locks`.
    pub(super) file: &'static str,
    /// How many tries to write failed meanwhile; none succeeded.
    pub(super) tries: u32,
}

/// Everything that is tried.
pub(super) struct Watch {
    files: Mutex<Vec<File>>,
}

struct File {
    name: &'static str,
    db: Connection,
    /// While nobody is stopped.
    usual: Tries,
    /// While a replica is.
    stopped: Option<Tries>,
}

impl Watch {
    /// Tries these files. They must be there.
    pub(super) fn on(files: Vec<(&'static str, PathBuf)>) -> anyhow::Result<Self> {
        let open = |(name, path): (&'static str, PathBuf)| {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let db = Connection::open_with_flags(&path, flags)
                .and_then(|db| db.busy_timeout(Duration::ZERO).map(|()| db))
                .with_context(|| format!("cannot watch {}", path.display()))?;
            Ok(File {
                name,
                db,
                usual: Tries::default(),
                stopped: None,
            })
        };
        Ok(Self {
            files: Mutex::new(files.into_iter().map(open).collect::<anyhow::Result<_>>()?),
        })
    }

    fn each<T>(&self, what: impl FnMut(&mut File) -> T) -> Vec<T> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter_mut().map(what).collect()
    }

    /// Tries for ever.
    pub(super) async fn run(&self) -> std::convert::Infallible {
        loop {
            self.each(File::attempt);
            BootClock.sleep(OsRandom.jitter(PAUSE)).await;
        }
    }

    /// Counts apart from when this process has come to a stand. If it does not, there is nothing to prove by it.
    pub(super) async fn stopped(&self, pid: Pid) {
        let end = BootClock.now() + PATIENCE;
        while !stands(pid) {
            if BootClock.now() > end {
                return;
            }
            BootClock.sleep(Duration::from_millis(1)).await;
        }
        self.each(|file| file.stopped = Some(Tries::default()));
    }

    /// It is about to go on. Answers the file that it kept locked for all that time, if it did.
    pub(super) fn goes_on(&self) -> Option<Kept> {
        let kept = |file: &mut File| {
            let tries = file.stopped.take()?;
            (tries.all >= ENOUGH && tries.locked == tries.all).then_some(Kept {
                file: file.name,
                tries: tries.all,
            })
        };
        self.each(kept).into_iter().flatten().next()
    }

    /// How often each file was found locked while nobody was stopped.
    pub(super) fn usual(&self) -> Vec<(&'static str, Tries)> {
        self.each(|file| (file.name, file.usual))
    }
}

impl File {
    fn attempt(&mut self) {
        let locked = self.db.execute_batch("BEGIN IMMEDIATE").is_err();
        if !locked {
            let _ = self.db.execute_batch("ROLLBACK");
        }
        let tries = self.stopped.as_mut().unwrap_or(&mut self.usual);
        tries.all += 1;
        tries.locked += u32::from(locked);
    }
}

/// Are all threads of this process stopped?
fn stands(pid: Pid) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return false;
    };
    let stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name before it may hold anything, but no parenthesis comes after it.
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    tasks.flatten().all(stopped)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A file that someone writes to, and its watch, in a stop that has begun.
    fn stage(folder: &std::path::Path) -> (Connection, Watch) {
        let path = folder.join("jobs.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a)")
            .unwrap();
        let watch = Watch::on(vec![("jobs", path)]).unwrap();
        watch.each(|file| file.stopped = Some(Tries::default()));
        (writer, watch)
    }

    fn attempts(watch: &Watch, times: u32) {
        for _ in 0..times {
            watch.each(File::attempt);
        }
    }

    #[test]
    fn a_file_that_was_locked_at_every_try_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, watch) = stage(folder.path());
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        attempts(&watch, ENOUGH);
        let kept = Kept {
            file: "jobs",
            tries: ENOUGH,
        };
        assert_eq!(watch.goes_on(), Some(kept));
        // What was tried in a stop says nothing of the usual.
        assert_eq!(watch.usual(), [("jobs", Tries::default())]);
    }

    #[test]
    fn one_try_that_gets_the_lock_is_proof_enough_that_it_was_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, watch) = stage(folder.path());
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        attempts(&watch, ENOUGH);
        writer.execute_batch("ROLLBACK").unwrap();
        attempts(&watch, 1);
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        attempts(&watch, ENOUGH);
        assert_eq!(watch.goes_on(), None);
    }

    #[test]
    fn a_few_tries_prove_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, watch) = stage(folder.path());
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        attempts(&watch, ENOUGH - 1);
        assert_eq!(watch.goes_on(), None);
        attempts(&watch, 2);
        assert_eq!(watch.usual(), [("jobs", Tries { all: 2, locked: 2 })]);
    }

    #[test]
    fn who_runs_does_not_stand() {
        assert!(!stands(rustix::process::getpid()));
    }
}
