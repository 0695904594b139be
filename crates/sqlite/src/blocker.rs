//! Who keeps the file locked, for the message of a step that waited in vain.
//!
//! "Busy" alone sends an operator searching; the kernel's list of locks names the process. The list is read
//! rather than the lock asked for: closing the log's index here would drop all the locks this process has on it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

use crate::connection::beside;

/// The byte of the log's index (`-shm`) that a writer locks.
const WRITE_LOCK: u64 = 120;

/// The list is read page by page, and whatever is locked or unlocked between two of them may push a line out of sight.
const TRIES: usize = 5;

/// A process that has what others wait for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    pid: u32,
    /// Its program's name, as far as the kernel keeps it.
    command: String,
    condition: Condition,
}

/// What keeps it from going on, if anything does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    /// It works, or waits for nothing that can be seen from here.
    Alive,
    /// One of its threads is inside the kernel, and cannot even be killed until that is done.
    Disk,
    /// A signal or a debugger has stopped it.
    Stopped,
}

impl Blocker {
    /// The process that has the write lock right now; `None` if nobody has it, or if it cannot be seen: it may
    /// live in another container.
    pub(crate) fn of(database: &Path) -> Option<Self> {
        let index = fs::metadata(beside(database, "-shm")).ok()?;
        let (dev, ino) = (index.dev(), index.ino());
        let file = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
        let pid = (0..TRIES).find_map(|_| writer(&fs::read_to_string("/proc/locks").ok()?, &file))?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Self {
            pid,
            command: command.trim_end().to_owned(),
            condition: condition(pid),
        })
    }
}

/// Finds in the kernel's list who has the write lock of this file.
fn writer(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // Those who wait for a lock have an arrow as their second word, and so no such line.
        let mut words = line.split_whitespace().skip(1);
        let kind = (words.next()?, words.next()?, words.next()?);
        let pid = words.next()?;
        let here = words.next()? == file;
        let from: u64 = words.next()?.parse().ok()?;
        let to = words.next()?;
        let covers =
            from <= WRITE_LOCK && (to == "EOF" || to.parse::<u64>().is_ok_and(|to| WRITE_LOCK <= to));
        (kind == ("POSIX", "ADVISORY", "WRITE") && here && covers)
            .then(|| pid.parse().ok())
            .flatten()
            // 0 stands for a process that this one must not know.
            .filter(|pid| *pid != 0)
    })
}

/// The worst that any of its threads is in: which one has the lock cannot be seen.
fn condition(pid: u32) -> Condition {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .map(|stat| state(&stat))
        .max()
        .unwrap_or(Condition::Alive)
}

/// Reads it off a thread's line: `pid (name) state …`, in whose name anything may stand.
fn state(stat: &str) -> Condition {
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    match after_name.trim_start().chars().next() {
        Some('T' | 't') => Condition::Stopped,
        Some('D') => Condition::Disk,
        _ => Condition::Alive,
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, command, .. } = self;
        if *pid == std::process::id() {
            return f.write_str("another connection of this very process holds the write lock");
        }
        write!(f, "process {pid} ({command}) holds the write lock")?;
        match self.condition {
            Condition::Alive => Ok(()),
            Condition::Disk => f.write_str(
                " and waits inside the kernel, most likely for the disk: see what keeps the disk or the \
                 machine busy",
            ),
            Condition::Stopped => write!(
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
        assert_eq!(writer(LOCKS, "fe:00:99"), None);
        assert_eq!(writer(LOCKS, "fe:00:98"), Some(8));
        for range in ["120 120", "120 127", "0 EOF", "100 120"] {
            let more = format!("{LOCKS}7: POSIX  ADVISORY  WRITE 12 fe:00:99 {range}\n");
            assert_eq!(writer(&more, "fe:00:99"), Some(12), "{range}");
        }
        assert_eq!(
            writer("7: -> POSIX  ADVISORY  WRITE 12 fe:00:99 120 120", "fe:00:99"),
            None
        );
        assert_eq!(writer("nonsense\n\n", "fe:00:99"), None);
    }

    #[test]
    fn a_threads_state_comes_after_its_name() {
        assert_eq!(state("1 (a) S 0"), Condition::Alive);
        assert_eq!(state("1 (D) R 0"), Condition::Alive);
        assert_eq!(state("1 (a) T) D 0"), Condition::Disk);
        assert_eq!(state("1 (a) T 0"), Condition::Stopped);
        assert_eq!(state("1 (a) t 0"), Condition::Stopped);
        assert_eq!(state(""), Condition::Alive);
    }

    #[test]
    fn it_is_told_what_to_do() {
        let told = |pid, condition| {
            let command = "worker".to_owned();
            Blocker {
                pid,
                command,
                condition,
            }
            .to_string()
        };
        assert_eq!(
            told(12, Condition::Alive),
            "process 12 (worker) holds the write lock"
        );
        assert!(told(12, Condition::Stopped).contains("kill -CONT 12"));
        assert!(told(12, Condition::Disk).contains("waits inside the kernel"));
        assert!(told(std::process::id(), Condition::Alive).contains("this very process"));
    }
}
