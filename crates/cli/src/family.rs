//! A command with everything it has started, so that all of it can be ended.
//!
//! Three nets, each for what the one before lets through: the process group (everyone who did not leave it);
//! descendants of `leasehold run`, which adopts orphans for this (those who left the group, e.g. by `setsid`); and, when
//! leasehold itself is dead, processes with this run's mark in their environment (orphans nobody can trace any more).
//! A process that left the group *and* cleared its environment outlives a `kill -9` of leasehold.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable whose value tells one run's processes from another's.
pub(crate) const MARK: &str = "LEASEHOLD_RUN";

/// Who belongs to one run.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// The command's process group.
    pub(crate) group: Pid,
    /// Whose descendants belong to it too: `leasehold run`, while it lives.
    pub(crate) root: Option<Pid>,
    /// Who does not belong to it all the same: the guardian.
    pub(crate) spare: Option<Pid>,
    /// The value of [`MARK`], where descent cannot be traced.
    pub(crate) mark: Option<String>,
}

impl Family {
    /// Sends a signal to everyone. Who is gone already has got what was wanted.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
        for member in self.members() {
            if member.group != self.group {
                let _ = kill_process(member.pid, signal);
            }
        }
    }

    /// Asks everyone to end; the stopped ones are woken to hear it.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Is anyone left?
    pub(crate) fn alive(&self) -> bool {
        self.members().iter().any(|member| !member.dead)
    }

    /// Everyone, zombies included.
    fn members(&self) -> Vec<Process> {
        let all = processes();
        let parents: HashMap<_, _> = all.iter().map(|process| (process.pid, process.parent)).collect();
        let belongs = |process: &Process| {
            Some(process.pid) != self.spare
                && (process.group == self.group
                    || self.descends(process.pid, &parents)
                    || self.marked(process))
        };
        all.into_iter().filter(belongs).collect()
    }

    fn descends(&self, process: Pid, parents: &HashMap<Pid, Option<Pid>>) -> bool {
        let mut at = process;
        // Ids are reused while we look, so a chain could close into a circle: no chain is longer than all processes.
        for _ in 0..=parents.len() {
            match parents.get(&at) {
                Some(Some(parent)) if Some(*parent) == self.root => return Some(at) != self.spare,
                Some(Some(parent)) => at = *parent,
                _ => return false,
            }
        }
        false
    }

    fn marked(&self, process: &Process) -> bool {
        let Some(mark) = &self.mark else { return false };
        let wanted = format!("{MARK}={mark}");
        let environment = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
        environment.is_ok_and(|bytes| {
            bytes
                .split(|byte| *byte == 0)
                .any(|pair| pair == wanted.as_bytes())
        })
    }
}

/// One process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Pid,
    /// It has ended and only waits to be collected.
    pub(crate) dead: bool,
}

/// Every process we can see.
pub(crate) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        })
        .collect()
}

/// `pid (name) state ppid pgrp …`; the name may contain anything, a parenthesis too.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // The kernel shows -1 for the group of a process that is just being taken away: it is dead enough to be skipped.
    let id = |text: &str| {
        text.parse::<i32>()
            .ok()
            .filter(|id| *id > 0)
            .and_then(Pid::from_raw)
    };
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent: id(fields.next()?),
        group: id(fields.next()?)?,
        dead: matches!(state, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read_past() {
        let found = parse(7, "7 (a) b) S 1 (x) 3) Z 2 5 9").unwrap();
        assert_eq!(found.parent, Pid::from_raw(2));
        assert_eq!(found.group, Pid::from_raw(5).unwrap());
        assert!(found.dead);
        assert_eq!(parse(7, "garbage"), None);
        assert_eq!(parse(7, "7 (gone) Z 0 -1 -1"), None);
        assert_eq!(parse(1, "1 (init) S 0 1 1").unwrap().parent, None);
    }

    #[test]
    fn finds_itself() {
        let me = rustix::process::getpid();
        let found = processes();
        let this = found.iter().find(|process| process.pid == me).unwrap();
        assert_eq!(this.parent, rustix::process::getppid());
        assert!(!this.dead);
    }
}
