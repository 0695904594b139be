//! The guardian: a small process beside the supervising one that enforces the deadline too.
//!
//! It has no store, no runtime and one thread, and runs in a session of its own. What stops or kills
//! leasehold (a signal to its group, a hang-up, `kill -9`) therefore does not reach it. Leasehold sends
//! each new deadline through a pipe. If the deadline passes without a newer one, leasehold is stopped or
//! stuck; if the pipe closes, leasehold is dead. In both cases the guardian ends the command: TERM, then
//! KILL before the lease expires.
//!
//! Orders, one per line: `group PGID START` (the start of its leader, as in `/proc`), `until DEADLINE KILL` (nanoseconds of the boot clock), `open` (no
//! deadline: the class lets work continue), `stop` (end the command now), `done`. Replies: `set` (to
//! `group`), `acted`, `quiet` (to `done`: it never acted). See ADR 9.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, Moment};
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid};

use crate::helper_process::FAILED;
use crate::process_tree::{Process, ProcessTree};

/// Between two checks whether the signalled processes have ended; doubled from the first to the second. A check reads all of
/// /proc: many guardians that check too often would keep the processor from the commands that they end.
const MIN_EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_EXIT_POLL_INTERVAL: Duration = Duration::from_millis(40);
// The longest sleep: timers stop while the machine is suspended, but the boot clock does not.
const MAX_SLEEP: Duration = Duration::from_secs(1);
// Rounds of KILL, for processes that were forked while a round was sent.
const MAX_KILL_ROUNDS: u32 = 400;

/// Watches until leasehold dismisses it or it has acted. Arguments: the pid whose descendants belong to the
/// command (0 if they cannot be told from others'), grace in nanoseconds, run id, lock name.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>, report: fn(&str)) -> ExitCode {
    let words: Vec<_> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let [root, grace, run_id, name] = words.as_slice() else {
        report("this is a part of `leasehold run`; use that");
        return ExitCode::from(FAILED);
    };
    let (Ok(root), Ok(grace)) = (root.parse(), grace.parse().map(Duration::from_nanos)) else {
        return ExitCode::from(FAILED);
    };
    // A service manager that stops a whole unit sends TERM to this process too. The guardian must not
    // end before the command has ended.
    let _ = SigSet::all().thread_block();
    let _ = rustix::process::setsid();
    // A detached process must not keep a file system from being unmounted.
    let _ = std::env::set_current_dir("/");
    let mut guardian = Guardian {
        root: Pid::from_raw(root),
        grace,
        run_id: run_id.clone(),
        name: name.clone(),
        report,
        group: None,
        leader_start: None,
        term_and_kill_at: None,
        unparsed: Vec::new(),
    };
    guardian.watch();
    ExitCode::SUCCESS
}

struct Guardian {
    /// The supervising process, if every descendant of it belongs to the command.
    root: Option<Pid>,
    /// From TERM to KILL after leasehold has died.
    grace: Duration,
    run_id: String,
    name: String,
    report: fn(&str),
    group: Option<Pid>,
    leader_start: Option<u64>,
    /// When to send TERM, and when to send KILL.
    term_and_kill_at: Option<(Moment, Moment)>,
    /// Bytes from the pipe that are not a complete line yet.
    unparsed: Vec<u8>,
}

enum PipeEvent {
    Timeout,
    Commands,
    Closed,
    Stop,
    Done,
}

impl Guardian {
    fn watch(&mut self) {
        loop {
            let now = BootClock.now();
            let left = match (self.group, self.term_and_kill_at) {
                (Some(_), Some((deadline, _))) => deadline.since(now),
                _ => MAX_SLEEP,
            };
            // Read the pipe before checking the clock: it may already contain a newer deadline.
            match self.read_commands(left.min(MAX_SLEEP)) {
                PipeEvent::Commands => continue,
                PipeEvent::Timeout => {}
                PipeEvent::Done => return send_reply("quiet"),
                PipeEvent::Stop => return self.end_command(self.kill_soon(), self.root),
                PipeEvent::Closed => return self.end_after_leasehold_died(),
            }
            if let (Some(_), Some((deadline, kill))) = (self.group, self.term_and_kill_at)
                && BootClock.now() >= deadline
            {
                // Reply first: leasehold asks for the result as soon as the command has ended.
                send_reply("acted");
                return self.end_command(kill, self.root);
            }
        }
    }

    /// Ends the command after leasehold was killed or crashed.
    fn end_after_leasehold_died(&self) {
        self.end_command(self.kill_soon(), None);
        if self.group.is_some() {
            (self.report)(&format!(
                "leasehold died while it held {}; its guardian has ended the command\n\
                 the lock is free when its lease runs out",
                self.name
            ));
        }
    }

    /// When KILL is due if TERM is sent now.
    fn kill_soon(&self) -> Moment {
        let soon = BootClock.now() + self.grace;
        self.term_and_kill_at.map_or(soon, |(_, kill)| kill.min(soon))
    }

    /// Sends TERM while there is time for it, then KILL until no process is left.
    fn end_command(&self, kill: Moment, root: Option<Pid>) {
        let Some(group) = self.group else { return };
        let tree = ProcessTree {
            group,
            leader_start: self.leader_start,
            root,
            exclude: Some(getpid()),
            // While leasehold adopts orphans, descent finds every process, and no environment has to be read.
            run_id: root.is_none().then(|| self.run_id.clone()),
        };
        let mut last_seen = None;
        if BootClock.now() < kill {
            tree.terminate();
            let mut interval = MIN_EXIT_POLL_INTERVAL;
            while BootClock.now() < kill {
                let members = tree.members();
                if members.iter().all(|member| member.dead) {
                    return;
                }
                last_seen = Some(members);
                sleep(interval.min(kill.since(BootClock.now())));
                interval = (interval * 2).min(MAX_EXIT_POLL_INTERVAL);
            }
        }
        kill_tree(&tree, last_seen.as_deref(), || tree.members());
    }

    /// Waits at most this long for commands and applies them.
    fn read_commands(&mut self, at_most: Duration) -> PipeEvent {
        let stdin = std::io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: at_most.as_secs().try_into().unwrap_or(1),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        if !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
            return PipeEvent::Timeout;
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(stdin.as_fd(), &mut buffer) {
            Ok(0) | Err(_) => PipeEvent::Closed,
            Ok(count) => {
                self.unparsed.extend(buffer.iter().take(count));
                self.apply_commands()
            }
        }
    }

    /// Applies every complete line.
    fn apply_commands(&mut self) -> PipeEvent {
        while let Some(end) = self.unparsed.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unparsed.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split_ascii_whitespace();
            let order = words.next();
            let mut number = || words.next()?.parse::<u64>().ok();
            match order {
                Some("group") => {
                    let group = number().and_then(|pid| i32::try_from(pid).ok());
                    self.group = group.and_then(Pid::from_raw);
                    self.leader_start = number();
                    send_reply("set");
                }
                Some("until") => {
                    if let (Some(deadline), Some(kill)) = (number(), number()) {
                        self.term_and_kill_at =
                            Some((Moment::from_nanos(deadline), Moment::from_nanos(kill)));
                    }
                }
                Some("open") => self.term_and_kill_at = None,
                Some("stop") => return PipeEvent::Stop,
                Some("done") => return PipeEvent::Done,
                _ => {}
            }
        }
        PipeEvent::Commands
    }
}

/// Sends KILL until no process is left. `list` finds the processes of the tree; it reads all of /proc.
fn kill_tree(tree: &ProcessTree, last_seen: Option<&[Process]>, mut list: impl FnMut() -> Vec<Process>) {
    // The lease is about to expire: kill what was seen last, and look for the rest afterwards. On a machine with many
    // processes a listing takes longer than the time that is left.
    match last_seen {
        Some(members) => tree.signal_members(members, Signal::KILL),
        None => drop(tree.signal_group(Signal::KILL)),
    }
    for _ in 0..MAX_KILL_ROUNDS {
        let members = list();
        if members.iter().all(|member| member.dead) {
            return;
        }
        tree.signal_members(&members, Signal::KILL);
        sleep(MIN_EXIT_POLL_INTERVAL);
    }
}

/// Sends a reply. If leasehold is dead or stopped the write fails, and nothing depends on it.
fn send_reply(word: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}

fn sleep(time: Duration) {
    let time =
        Timespec { tv_sec: time.as_secs().try_into().unwrap_or(1), tv_nsec: time.subsec_nanos().into() };
    let _ = rustix::thread::nanosleep(&time);
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;
    use crate::process_tree::start_time;

    /// Finding 16 of the security review: a listing of all processes takes time that the lease may not have.
    #[test]
    fn finding_16_kill_does_not_wait_for_a_listing() {
        let mut child = std::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let tree =
            ProcessTree { group, leader_start: start_time(group), root: None, exclude: None, run_id: None };
        let mut killed_first = None;
        kill_tree(&tree, None, || {
            // KILL takes effect within moments, or was not sent.
            for _ in 0..400 {
                if tree.members().iter().all(|member| member.dead) {
                    break;
                }
                sleep(MIN_EXIT_POLL_INTERVAL);
            }
            killed_first.get_or_insert(tree.members().iter().all(|member| member.dead));
            tree.members()
        });
        child.wait().unwrap();
        assert_eq!(killed_first, Some(true));
    }
}
