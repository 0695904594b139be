//! The gate: the command's process before it executes the command.
//!
//! It waits until the guardian knows its process group, then calls `exec`. So the command never runs
//! without a guardian.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::helper_process::FAILED;

/// The byte on the pipe that lets the gate continue.
pub(crate) const GO_BYTE: &[u8] = b"g";

/// The exit codes for a command that cannot be executed, as in env(1).
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Waits for the byte, then executes the command. Arguments: descriptor, parent pid, command, arguments.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>, report: fn(&str)) -> ExitCode {
    let mut number = || arguments.next()?.to_str()?.parse::<i32>().ok();
    let (Some(descriptor), Some(parent)) = (number(), number()) else {
        report("this is a part of `leasehold run`; use that");
        return ExitCode::from(FAILED);
    };
    let Some(program) = arguments.next() else {
        return ExitCode::from(FAILED);
    };
    if !wait_for_go(descriptor, parent) {
        return ExitCode::from(FAILED);
    }
    let mut command = Command::new(&program);
    if descriptor == 0 {
        // The pipe took the place of standard input, which the command of a captured spec does not have.
        // The parent-death signal stays off: it is sent when the *thread* that forked this process ends.
        command.stdin(Stdio::null());
        let _ = set_parent_process_death_signal(None);
    } else {
        // The guardian watches from here on; this signal only tells the command sooner that leasehold died.
        // It is TERM and not KILL, because the guardian allows for a grace period.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
    let error = command.args(arguments).exec();
    let (why, code) = match error.kind() {
        ErrorKind::NotFound => ("there is no such command".to_owned(), NOT_FOUND),
        _ => (error.to_string(), CANNOT_RUN),
    };
    report(&format!("cannot run {}: {why}", program.display()));
    ExitCode::from(code)
}

/// Waits for the byte. Returns false if leasehold died first.
fn wait_for_go(descriptor: i32, parent: i32) -> bool {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have died before the death signal was set.
    if getppid() != Pid::from_raw(parent) {
        return false;
    }
    // The re-opened descriptor has CLOEXEC. The inherited one must be closed here, or the command gets it.
    let pipe = File::open(format!("/proc/self/fd/{descriptor}"));
    // Standard input is replaced instead: its number must not be free for the next file that is opened.
    if descriptor != 0 {
        let _ = nix::unistd::close(descriptor);
    }
    let mut message = [0; 1];
    matches!(pipe.and_then(|mut pipe| pipe.read(&mut message)), Ok(1)) && message == GO_BYTE
}
