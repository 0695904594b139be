//! The gate: the command's process before it is the command. It waits until the guardian knows it, then becomes the
//! command. So there is no moment at which the command runs and nobody would end it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::exit;
use crate::say::say;

/// The hidden word that `run` starts it with, before: descriptor, parent, command, arguments.
pub(crate) const WORD: &str = "__gate";

/// The byte that opens it.
pub(crate) const GO: &[u8] = b"g";

/// Waits, then becomes the command.
pub(crate) fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || words.next()?.to_str()?.parse::<i32>().ok();
    let (Some(descriptor), Some(parent)) = (number(), number()) else {
        say("this is a part of `leasehold run`; use that");
        return ExitCode::from(exit::FAILED);
    };
    let Some(program) = words.next() else {
        return ExitCode::from(exit::FAILED);
    };
    if !opened(descriptor, parent) {
        return ExitCode::from(exit::FAILED);
    }
    // From here on the guardian watches; this only shortens the time until the command hears of leasehold's death.
    // It is asked to end, not killed: the guardian allows for that.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let error = Command::new(&program).args(words).exec();
    let (why, code) = match error.kind() {
        ErrorKind::NotFound => ("there is no such command".to_owned(), exit::NOT_FOUND),
        _ => (error.to_string(), exit::CANNOT_RUN),
    };
    say(&format!("cannot run {}: {why}", program.display()));
    ExitCode::from(code)
}

/// Answers whether the gate was opened; not if leasehold died first.
fn opened(descriptor: i32, parent: i32) -> bool {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have died before we asked to hear of it.
    if getppid() != Pid::from_raw(parent) {
        return false;
    }
    // Opened anew, the descriptor is closed by `exec`; the inherited one must be closed here or the command has it.
    let pipe = File::open(format!("/proc/self/fd/{descriptor}"));
    let _ = nix::unistd::close(descriptor);
    let mut said = [0; 1];
    matches!(pipe.and_then(|mut pipe| pipe.read(&mut said)), Ok(1)) && said == GO
}
