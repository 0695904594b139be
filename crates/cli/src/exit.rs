//! Exit codes.
//!
//! `run`: the command's own; 128+N if it died of signal N that was not ours; [`LOST`], [`BUSY`], [`FAILED`],
//! [`CANNOT_RUN`] and [`NOT_FOUND`] (as env(1)) if leasehold has something to say. Other verbs: 0 yes, 1 an honest no,
//! 2 an error.

use std::process::{ExitCode, ExitStatus};

use crate::say::say;

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
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Words that cannot be understood. `run` answers with its own code for that, since 2 could be its command's.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to panic.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let running = std::env::args_os()
        .skip(1)
        .find(|word| {
            [
                "run", "list", "show", "policy", "advise", "job", "workflow", "approval", "plane", "drill",
                "help",
            ]
            .iter()
            .any(|verb| word == verb)
        })
        .is_some_and(|word| word == "run");
    ExitCode::from(if running { FAILED } else { 2 })
}
