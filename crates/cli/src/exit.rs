//! Exit codes.
//!
//! `run` and `elect`: the command's own; 128+N if it died of signal N that was not ours; [`LOST`], [`BUSY`], [`FAILED`],
//! [`CANNOT_RUN`] and [`NOT_FOUND`] (as env(1)) if leasehold has something to say. Other verbs: 0 yes, 1 an honest no,
//! 2 an error.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{ExitCode, ExitStatus};

use crate::say::{say, told};
use crate::usage;

/// The lease was lost and the command was stopped.
pub(crate) const LOST: u8 = 121;
/// Someone else has it.
pub(crate) const BUSY: u8 = 124;
/// Leasehold itself failed; the command did not run.
pub(crate) const FAILED: u8 = 125;
/// The command is there but cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// The verbs that pass a command's exit code on, so that none of their own may look like one.
const RUNNING: [&str; 2] = ["run", "elect"];

/// The code of a process that died of this signal.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(FAILED)
}

/// The code that passes a command's end on.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
        (None, Some(signal)) => of_signal(signal),
        (None, None) => FAILED,
    }
}

/// What a verb that answers yes or no ends with.
pub(crate) fn of_answer(answer: anyhow::Result<bool>) -> ExitCode {
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // Nobody reads any more: `leasehold list | head -1` is no error.
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&told(&error));
            ExitCode::from(2)
        }
    }
}

/// Words that cannot be understood, our own name first. `run` and `elect` answer with a code of their own for that: 2 could be
/// their command's.
pub(crate) fn of_usage(error: clap::Error, words: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is no reason to panic.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        say(&usage::told(error, words));
    }
    ExitCode::from(usage_code(words))
}

/// The code for words that cannot be understood.
pub(crate) fn usage_code(words: &[OsString]) -> u8 {
    let runs = usage::meant(words).is_some_and(|verb| RUNNING.contains(&verb.as_str()));
    if runs { FAILED } else { 2 }
}
