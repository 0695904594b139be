//! A command's process tree, so that all of it can be ended.
//!
//! Three ways to find a process, each for what the one before misses:
//!
//! 1. The process group.
//! 2. Descendants: of the group, and of a supervising process that is a subreaper for one command only.
//!    These are processes that left the group, e.g. by `setsid`.
//! 3. Processes with the command's run id in their environment, and their descendants. They are orphans
//!    without a traceable parent, where the supervising process has died or runs several commands.
//!
//! A process that left the group *and* cleared its environment survives a `kill -9` of `leasehold run`. In
//! a plane's job it also survives if all its ancestors have ended.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The environment variable with the run id, which separates one run's processes from another's.
pub const RUN_ID_VARIABLE: &str = "LEASEHOLD_RUN";

/// The processes of one run.
#[derive(Debug, Clone)]
pub(crate) struct ProcessTree {
    pub(crate) group: Pid,
    /// When the group's leader started. A leader of the same number with another start is a stranger, and so is its group.
    pub(crate) leader_start: Option<u64>,
    /// A process all of whose descendants belong to the tree: `leasehold run`, while it lives.
    pub(crate) root: Option<Pid>,
    /// A descendant that does not belong to the tree: the guardian.
    pub(crate) exclude: Option<Pid>,
    /// The value of [`RUN_ID_VARIABLE`], set where descent cannot be traced.
    pub(crate) run_id: Option<String>,
}

impl ProcessTree {
    /// Sends a signal to every process of the tree.
    pub(crate) fn signal(&self, signal: Signal) {
        // Listed before the group gets the signal: the descent of an orphan cannot be traced.
        self.signal_members(&self.members(), signal);
    }

    /// Sends a signal to the group while its leader exists, and to the members that the group does not reach.
    pub(crate) fn signal_members(&self, members: &[Process], signal: Signal) {
        let leader_exists = self.signal_group(signal);
        for member in members {
            if member.group != self.group || !leader_exists {
                let _ = kill_process(member.pid, signal);
            }
        }
    }

    /// Sends a signal to the group, without a look at other processes. Returns whether the group's leader exists.
    pub(crate) fn signal_group(&self, signal: Signal) -> bool {
        // While the leader exists, as a zombie too, the kernel gives its number to no other group. After it was
        // reaped, the number may belong to a stranger.
        let leader_exists = read_process(self.group).is_some_and(|leader| self.is_leader(&leader));
        if leader_exists {
            // ESRCH: already dead.
            let _ = kill_process_group(self.group, signal);
        }
        leader_exists
    }

    fn is_leader(&self, process: &Process) -> bool {
        process.pid == self.group && self.leader_start.is_some() && process.started == self.leader_start
    }

    /// Sends TERM, then CONT: a stopped process handles TERM only after it continues.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn any_alive(&self) -> bool {
        self.members().iter().any(|member| !member.dead)
    }

    /// All processes of the tree, zombies included.
    pub(crate) fn members(&self) -> Vec<Process> {
        let all = processes();
        let parents: HashMap<_, _> = all.iter().map(|process| (process.pid, process.parent)).collect();
        // The number is reused only after all processes of the command's own group have ended.
        let is_strangers = all.iter().any(|process| process.pid == self.group && !self.is_leader(process));
        // `root` is an ancestor, not a member.
        let known: HashSet<_> = all
            .iter()
            .filter(|process| (process.group == self.group && !is_strangers) || self.has_run_id(process))
            .map(|process| process.pid)
            .collect();
        all.into_iter().filter(|process| self.is_member(process.pid, &known, &parents)).collect()
    }

    fn is_member(&self, process: Pid, known: &HashSet<Pid>, parents: &HashMap<Pid, Option<Pid>>) -> bool {
        let mut at = process;
        // Process ids are reused while we read, so the chain could form a loop. The count bounds it.
        for _ in 0..=parents.len() {
            if Some(at) == self.exclude {
                return false;
            }
            if known.contains(&at) {
                return true;
            }
            match parents.get(&at) {
                Some(Some(parent)) if Some(*parent) == self.root => return true,
                Some(Some(parent)) => at = *parent,
                _ => return false,
            }
        }
        false
    }

    fn has_run_id(&self, process: &Process) -> bool {
        let Some(mark) = &self.run_id else { return false };
        let wanted = format!("{RUN_ID_VARIABLE}={mark}");
        let environment = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
        environment.is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Pid,
    /// Ended, but not yet collected by its parent.
    pub(crate) dead: bool,
    /// When it started, in clock ticks since the machine's start.
    pub(crate) started: Option<u64>,
}

/// When a process started; `None` if it is gone, or another user's on a machine that hides those.
pub(crate) fn start_time(pid: Pid) -> Option<u64> {
    read_process(pid)?.started
}

fn read_process(pid: Pid) -> Option<Process> {
    let number = pid.as_raw_nonzero().get();
    parse_stat(number, &fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

/// Every process that `/proc` shows to this user.
pub(crate) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            read_process(Pid::from_raw(pid)?)
        })
        .collect()
}

// The line is `pid (name) state ppid pgrp …`, the start is its field 22. The name may contain parentheses, so split at the
// last one.
fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // The kernel shows -1 as the group of a process that is being removed; it counts as dead.
    let id = |text: &str| text.parse::<i32>().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent: id(fields.next()?),
        group: id(fields.next()?)?,
        dead: matches!(state, "Z" | "X"),
        started: fields.nth(16).and_then(|ticks| ticks.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_parentheses() {
        let found = parse_stat(7, "7 (a) b) S 1 (x) 3) Z 2 5 9").unwrap();
        assert_eq!(found.parent, Pid::from_raw(2));
        assert_eq!(found.group, Pid::from_raw(5).unwrap());
        assert!(found.dead);
        assert_eq!(parse_stat(7, "garbage"), None);
        assert_eq!(parse_stat(7, "7 (gone) Z 0 -1 -1"), None);
        assert_eq!(parse_stat(1, "1 (init) S 0 1 1").unwrap().parent, None);
    }

    /// Finding 16 of the security review: a reaped leader's number may belong to a stranger's group.
    #[test]
    fn finding_16_a_group_without_its_leader_is_not_signalled() {
        use std::os::unix::process::CommandExt;
        let mut stranger = std::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(stranger.id()).unwrap()).unwrap();
        let started = start_time(group).unwrap();
        let tree =
            |start| ProcessTree { group, leader_start: start, root: None, exclude: None, run_id: None };
        // The number was given to the stranger after the command's own leader had been reaped.
        let reused = tree(Some(started - 1));
        reused.signal(Signal::KILL);
        let signalled = reused.signal_group(Signal::KILL) || tree(None).signal_group(Signal::KILL);
        let listed = processes().into_iter().find(|process| process.pid == group).unwrap();
        let survived = !listed.dead && stranger.try_wait().unwrap().is_none() && !signalled;
        let found = (reused.members().len(), tree(Some(started)).members().len());
        // The same call reaches the group that it knows.
        assert!(tree(Some(started)).signal_group(Signal::KILL));
        stranger.wait().unwrap();
        assert!(survived);
        assert_eq!(found, (0, 1));
    }

    #[test]
    fn the_process_list_contains_this_process() {
        let me = rustix::process::getpid();
        let found = processes();
        let this = found.iter().find(|process| process.pid == me).unwrap();
        assert_eq!(this.parent, rustix::process::getppid());
        assert!(!this.dead);
    }
}
