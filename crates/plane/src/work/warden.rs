//! The warden: a small process between a replica and a command that holds the deadline when the replica cannot.
//!
//! It leads the command's process group, has one thread and no runtime. The replica writes each new deadline (boot clock,
//! nanoseconds, one a line) to its standard input. If a deadline passes without a newer one, the replica is stopped or
//! stuck; if the pipe closes, it is dead. Either way the warden kills its whole group, itself included: before the
//! lease's end, so that whoever takes the job over is alone.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, kill_process_group};

/// The hidden word that a program calls [`main`] for, before: first deadline, command, arguments.
pub const WORD: &str = "__warden";

/// How often it looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the command and watches over it; ends with the command's exit code.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words = words;
    let first = words.next().and_then(|word| word.to_str()?.parse().ok());
    let (Some(first), Some(program)) = (first, words.next()) else {
        return ExitCode::from(125);
    };
    let spawned = Command::new(&program).args(words).stdin(Stdio::null()).spawn();
    match spawned {
        Ok(child) => watch(child, Moment::from_nanos(first)),
        Err(error) => {
            eprintln!("{} cannot be started: {error}", program.display());
            ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound {
                127
            } else {
                126
            })
        }
    }
}

fn watch(mut child: Child, mut until: Moment) -> ExitCode {
    let mut heard = Vec::new();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                use std::os::unix::process::ExitStatusExt;
                let code = status
                    .code()
                    .or_else(|| status.signal().map(|signal| 128 + signal));
                return ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125));
            }
            Ok(None) => {}
            Err(_) => end(),
        }
        match listen(&mut heard) {
            Some(Some(deadline)) => until = deadline,
            Some(None) => {}
            None => end(),
        }
        if BootClock.now() >= until {
            end();
        }
    }
}

/// Everyone in the group, ourselves included.
fn end() {
    let _ = kill_process_group(getpgrp(), Signal::KILL);
}

/// Waits a little for orders. `None`: the pipe is closed; `Some(None)`: nothing new.
fn listen(heard: &mut Vec<u8>) -> Option<Option<Moment>> {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    if !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
        return Some(None);
    }
    let mut buffer = [0; 1024];
    match rustix::io::read(stdin.as_fd(), &mut buffer) {
        Ok(0) => None,
        Ok(read) => {
            heard.extend_from_slice(buffer.get(..read).unwrap_or_default());
            let Some(end) = heard.iter().rposition(|byte| *byte == b'\n') else {
                return Some(None);
            };
            let whole: Vec<u8> = heard.drain(..=end).collect();
            let text = String::from_utf8_lossy(&whole);
            Some(
                text.lines()
                    .last()
                    .and_then(|line| line.parse().ok())
                    .map(Moment::from_nanos),
            )
        }
        Err(rustix::io::Errno::INTR) => Some(None),
        Err(_) => None,
    }
}
