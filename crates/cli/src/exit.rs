//! Exit codes.
//!
//! `run` and `elect` pass on the command's code, or 128+N if signal N killed it. Their own results use
//! [`LOST`], [`BUSY`], [`FAILED`], [`CANNOT_RUN`] and [`NOT_FOUND`] (the last three as in env(1)). Every
//! other verb ends with 0 (yes), 1 (no) or 2 (error).

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{ExitCode, ExitStatus};

use crate::message::{error_text, print_message};
use crate::usage;

/// The lease was lost and the command was stopped.
pub(crate) const LOST: u8 = 121;
/// Another holder has the lock.
pub(crate) const BUSY: u8 = 124;
/// Leasehold itself failed; the command did not run.
pub(crate) const FAILED: u8 = 125;
/// The command exists but cannot be executed.
pub(crate) const CANNOT_RUN: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

// These verbs pass on the code of their command, so their own codes must differ from common ones.
const COMMAND_VERBS: [&str; 2] = ["run", "elect"];

/// The shell's convention for a process that a signal has killed: 128+N.
pub(crate) fn from_signal(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(FAILED)
}

pub(crate) fn from_status(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
        (None, Some(signal)) => from_signal(signal),
        (None, None) => FAILED,
    }
}

/// The exit code of a verb that answers yes or no.
pub(crate) fn from_answer(answer: anyhow::Result<bool>) -> ExitCode {
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // The reader closed the pipe: `leasehold list | head -1` is not an error.
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_message(&error_text(&error));
            ExitCode::from(2)
        }
    }
}

/// Prints a usage error, or the help that was asked for, and returns the exit code.
pub(crate) fn from_usage_error(error: clap::Error, words: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        // `print!` would panic if the pipe is closed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        print_message(&usage::usage_error_text(error, words));
    }
    ExitCode::from(usage_exit_code(words))
}

/// The exit code for invalid arguments: 2, except for `run` and `elect`, whose command may return 2.
pub(crate) fn usage_exit_code(words: &[OsString]) -> u8 {
    let runs = usage::intended_verb(words).is_some_and(|verb| COMMAND_VERBS.contains(&verb.as_str()));
    if runs { FAILED } else { 2 }
}
