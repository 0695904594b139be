//! The guardian: a small process beside `leasehold run` that holds the deadline too.
//!
//! It has no store, no runtime and one thread, and lives in a session of its own, so that what stops or kills leasehold (a
//! signal to its group, a hang-up, `kill -9`) does not reach it. Leasehold tells it each new deadline through a pipe. If
//! the deadline passes without a newer one, leasehold is stopped or stuck; if the pipe closes, leasehold is dead. In
//! either case the guardian ends the command: TERM, and KILL in time for the lease.
//!
//! Orders, one a line: `group PGID`, `until DEADLINE KILL` (nanoseconds of the boot clock), `open` (no deadline: the class
//! lets work go on), `done`. Answers: `ready`, `set` (to `group`), `acted`, `quiet` (to `done`: it never acted).

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid};

use crate::exit;
use crate::family::Family;
use crate::say::say;

/// The hidden word that `run` starts it with, before: parent, grace in nanoseconds, mark, lock's name.
pub(crate) const WORD: &str = "__guardian";

/// How often it looks whether those it has asked to end have ended.
const LOOK: Duration = Duration::from_millis(5);
/// The longest it sleeps: timers stand still while the machine is suspended, the boot clock does not.
const STEP: Duration = Duration::from_secs(1);
/// How often KILL is repeated for those who were forked while it was sent.
const SWEEPS: u32 = 400;

/// Watches until it is dismissed or has acted.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let [parent, grace, mark, name] = words.as_slice() else {
        say("this is a part of `leasehold run`; use that");
        return ExitCode::from(exit::FAILED);
    };
    let parent = parent.parse().ok().and_then(Pid::from_raw);
    let (Some(parent), Ok(grace)) = (parent, grace.parse().map(Duration::from_nanos)) else {
        return ExitCode::from(exit::FAILED);
    };
    // A service manager that stops a whole unit sends TERM to us too; it must not end us before the command has ended.
    let _ = SigSet::all().thread_block();
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let mut guardian = Guardian {
        parent,
        grace,
        mark: mark.clone(),
        name: name.clone(),
        group: None,
        until: None,
        heard: Vec::new(),
    };
    answer("ready");
    guardian.watch();
    ExitCode::SUCCESS
}

struct Guardian {
    parent: Pid,
    /// From TERM to KILL when leasehold is dead.
    grace: Duration,
    mark: String,
    name: String,
    group: Option<Pid>,
    /// When to ask the command to end, and when to kill it.
    until: Option<(Moment, Moment)>,
    /// What came through the pipe and is not a whole line yet.
    heard: Vec<u8>,
}

/// What came of listening.
enum Heard {
    Nothing,
    Orders,
    Closed,
    Done,
}

impl Guardian {
    fn watch(&mut self) {
        loop {
            let now = BootClock.now();
            let left = match (self.group, self.until) {
                (Some(_), Some((deadline, _))) => deadline.since(now),
                _ => STEP,
            };
            // An order that is already there counts before the clock: it may be the newer deadline.
            match self.listen(left.min(STEP)) {
                Heard::Orders => continue,
                Heard::Nothing => {}
                Heard::Done => return answer("quiet"),
                Heard::Closed => return self.leasehold_died(),
            }
            if let (Some(_), Some((deadline, kill))) = (self.group, self.until)
                && BootClock.now() >= deadline
            {
                answer("acted");
                return self.end(kill, Some(self.parent));
            }
        }
    }

    /// `kill -9`, or a crash.
    fn leasehold_died(&self) {
        let soon = BootClock.now() + self.grace;
        let kill = self.until.map_or(soon, |(_, kill)| kill.min(soon));
        self.end(kill, None);
        if self.group.is_some() {
            say(&format!(
                "leasehold died while it held {}; its guardian has ended the command\n\
                 the lock is free when its lease runs out",
                self.name
            ));
        }
    }

    /// TERM while there is time for it, then KILL until nobody is left.
    fn end(&self, kill: Moment, root: Option<Pid>) {
        let Some(group) = self.group else { return };
        let family = Family {
            group,
            root,
            spare: Some(getpid()),
            mark: root.is_none().then(|| self.mark.clone()),
        };
        if BootClock.now() < kill {
            family.ask_to_end();
            while BootClock.now() < kill && family.alive() {
                nap(LOOK.min(kill.since(BootClock.now())));
            }
        }
        for _ in 0..SWEEPS {
            if !family.alive() {
                return;
            }
            family.signal(Signal::KILL);
            nap(LOOK);
        }
    }

    /// Waits for orders, at most this long.
    fn listen(&mut self, at_most: Duration) -> Heard {
        let stdin = std::io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: at_most.as_secs().try_into().unwrap_or(1),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        if !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
            return Heard::Nothing;
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(stdin.as_fd(), &mut buffer) {
            Ok(0) | Err(_) => Heard::Closed,
            Ok(count) => {
                self.heard.extend(buffer.iter().take(count));
                self.obey()
            }
        }
    }

    /// Carries out every whole line.
    fn obey(&mut self) -> Heard {
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split_ascii_whitespace();
            let order = words.next();
            let mut number = || words.next()?.parse::<u64>().ok();
            match order {
                Some("group") => {
                    let group = number().and_then(|pid| i32::try_from(pid).ok());
                    self.group = group.and_then(Pid::from_raw);
                    answer("set");
                }
                Some("until") => {
                    if let (Some(deadline), Some(kill)) = (number(), number()) {
                        self.until = Some((Moment::from_nanos(deadline), Moment::from_nanos(kill)));
                    }
                }
                Some("open") => self.until = None,
                Some("done") => return Heard::Done,
                _ => {}
            }
        }
        Heard::Orders
    }
}

/// Leasehold may be dead or stopped: then nobody hears it, and nothing depends on it.
fn answer(word: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}

fn nap(time: Duration) {
    let time = Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(1),
        tv_nsec: time.subsec_nanos().into(),
    };
    let _ = rustix::thread::nanosleep(&time);
}
