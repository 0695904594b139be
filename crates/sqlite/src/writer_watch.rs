//! Finds the process that holds the write lock, for the error of a step that timed out.
//!
//! "Busy" alone leaves an operator searching. The kernel's lock list names the process. Querying
//! the lock itself would mean opening and closing the log's index file. That would drop all locks
//! this process has on it, so the list is read instead.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

use crate::connection::with_suffix;

/// Byte of the log's index (`-shm`) that an SQLite writer locks.
const WRITE_LOCK_BYTE: u64 = 120;

/// The kernel returns the list page by page. A change between two pages can hide a
/// line, so read it several times.
const LOCK_LIST_READ_ATTEMPTS: usize = 5;

/// A process that holds the write lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlockingWriter {
    pid: u32,
    /// Program name, as truncated by the kernel.
    command: String,
    state: WriterState,
}

/// What keeps the process from finishing its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WriterState {
    /// Nothing that is visible from outside.
    Running,
    /// A thread is in uninterruptible sleep, and cannot even be killed until the I/O ends.
    DiskSleep,
    /// Stopped by a signal or a debugger.
    Stopped,
}

impl BlockingWriter {
    /// The current holder of the write lock. `None` if the lock is free, or if the holder is
    /// invisible, for example in another container.
    pub(crate) fn find(database: &Path) -> Option<Self> {
        let index = fs::metadata(with_suffix(database, "-shm")).ok()?;
        let (dev, ino) = (index.dev(), index.ino());
        let file = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
        let pid = (0..LOCK_LIST_READ_ATTEMPTS)
            .find_map(|_| find_lock_owner(&fs::read_to_string("/proc/locks").ok()?, &file))?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Self { pid, command: command.trim_end().to_owned(), state: process_state(pid) })
    }
}

/// Finds the process id of this file's write lock in the kernel's list.
fn find_lock_owner(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // A process that waits for a lock has `->` as its second word, so its line does not match.
        let mut words = line.split_whitespace().skip(1);
        let kind = (words.next()?, words.next()?, words.next()?);
        let pid = words.next()?;
        let here = words.next()? == file;
        let from: u64 = words.next()?.parse().ok()?;
        let to = words.next()?;
        let covers = from <= WRITE_LOCK_BYTE
            && (to == "EOF" || to.parse::<u64>().is_ok_and(|to| WRITE_LOCK_BYTE <= to));
        (kind == ("POSIX", "ADVISORY", "WRITE") && here && covers)
            .then(|| pid.parse().ok())
            .flatten()
            // The kernel shows 0 for a process outside this PID namespace.
            .filter(|pid| *pid != 0)
    })
}

/// The worst state of any of its threads: the list does not tell which thread holds the lock.
fn process_state(pid: u32) -> WriterState {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .map(|stat| thread_state(&stat))
        .max()
        .unwrap_or(WriterState::Running)
}

/// Parses a thread's `stat` line: `pid (name) state …`.
fn thread_state(stat: &str) -> WriterState {
    // From the last parenthesis: the name itself may contain any character, parentheses included.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    match after_name.trim_start().chars().next() {
        Some('T' | 't') => WriterState::Stopped,
        Some('D') => WriterState::DiskSleep,
        _ => WriterState::Running,
    }
}

impl fmt::Display for BlockingWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, command, .. } = self;
        if *pid == std::process::id() {
            return f.write_str("another connection of this very process holds the write lock");
        }
        write!(f, "process {pid} ({command}) holds the write lock")?;
        match self.state {
            WriterState::Running => Ok(()),
            WriterState::DiskSleep => f.write_str(
                " and waits inside the kernel, most likely for the disk: see what keeps the disk or the \
                 machine busy",
            ),
            WriterState::Stopped => write!(
                f,
                " and is stopped: let it go on (kill -CONT {pid}) or end it (kill -KILL {pid}), which undoes its \
                 step and frees the lock"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  READ 7 fe:00:99 120 120
2: POSIX  ADVISORY  WRITE 8 fe:00:98 120 120
3: FLOCK  ADVISORY  WRITE 9 fe:00:99 0 EOF
4: POSIX  ADVISORY  WRITE 10 fe:00:99 121 128
5: POSIX  ADVISORY  WRITE 11 fe:00:99 0 119
6: POSIX  ADVISORY  WRITE 0 fe:00:99 120 120
";

    #[test]
    fn only_the_write_lock_of_this_file_counts() {
        assert_eq!(find_lock_owner(LOCKS, "fe:00:99"), None);
        assert_eq!(find_lock_owner(LOCKS, "fe:00:98"), Some(8));
        for range in ["120 120", "120 127", "0 EOF", "100 120"] {
            let more = format!("{LOCKS}7: POSIX  ADVISORY  WRITE 12 fe:00:99 {range}\n");
            assert_eq!(find_lock_owner(&more, "fe:00:99"), Some(12), "{range}");
        }
        assert_eq!(find_lock_owner("7: -> POSIX  ADVISORY  WRITE 12 fe:00:99 120 120", "fe:00:99"), None);
        assert_eq!(find_lock_owner("nonsense\n\n", "fe:00:99"), None);
    }

    #[test]
    fn a_threads_state_comes_after_its_name() {
        assert_eq!(thread_state("1 (a) S 0"), WriterState::Running);
        assert_eq!(thread_state("1 (D) R 0"), WriterState::Running);
        assert_eq!(thread_state("1 (a) T) D 0"), WriterState::DiskSleep);
        assert_eq!(thread_state("1 (a) T 0"), WriterState::Stopped);
        assert_eq!(thread_state("1 (a) t 0"), WriterState::Stopped);
        assert_eq!(thread_state(""), WriterState::Running);
    }

    #[test]
    fn message_advises_what_to_do() {
        let message = |pid, condition| {
            let command = "worker".to_owned();
            BlockingWriter { pid, command, state: condition }.to_string()
        };
        assert_eq!(message(12, WriterState::Running), "process 12 (worker) holds the write lock");
        assert!(message(12, WriterState::Stopped).contains("kill -CONT 12"));
        assert!(message(12, WriterState::DiskSleep).contains("waits inside the kernel"));
        assert!(message(std::process::id(), WriterState::Running).contains("this very process"));
    }
}
