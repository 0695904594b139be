//! Exit codes.
//!
//! `run` and `elect`: the command's own; 128+N if it died of signal N that was not ours; [`LOST`], [`BUSY`], [`FAILED`],
//! [`CANNOT_RUN`] and [`NOT_FOUND`] (as env(1)) if leasehold has something to say. Other verbs: 0 yes, 1 an honest no,
//! 2 an error.

use std::io::ErrorKind;
use std::process::{ExitCode, ExitStatus};

use clap::CommandFactory;

use crate::args::Cli;
use crate::say::{say, told};

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

/// Words that cannot be understood. `run` and `elect` answer with a code of their own for that: 2 could be their command's.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is no reason to panic.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        say(&usage(&error.render().to_string()));
    }
    // What can be understood of it all the same says which verb was meant.
    let meant = Cli::command().ignore_errors(true).try_get_matches();
    let verb = meant.as_ref().ok().and_then(|matches| matches.subcommand_name());
    let runs = verb.is_some_and(|verb| RUNNING.contains(&verb));
    ExitCode::from(if runs { FAILED } else { 2 })
}

/// What clap says, in the form that everything else is said in: what is wrong, what was probably meant, how it is typed.
fn usage(rendered: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut typed = None;
    for paragraph in rendered.split("\n\n") {
        let one: Vec<_> = paragraph.split_whitespace().collect();
        let one = one.join(" ");
        if let Some(wrong) = one.strip_prefix("error: ") {
            lines.push(allowed(wrong));
        } else if one.starts_with("tip: ") {
            lines.truncate(1);
            lines.push(one.replace(" tip: ", "; "));
        } else if one.starts_with("Usage: ") {
            typed = paragraph
                .trim()
                .lines()
                .next()
                .map(|first| first.replacen("Usage", "usage", 1));
        }
    }
    lines.push(typed.map_or_else(
        || "for more, try --help".to_owned(),
        |typed| format!("{typed}; for more, try --help"),
    ));
    lines.join("\n")
}

/// What the standard library says about a value that is not one, in words that say what is.
fn allowed(wrong: &str) -> String {
    wrong
        .replace("invalid digit found in string", "must be a whole number")
        .replace("cannot parse integer from empty string", "must be a whole number")
        .replace(
            "invalid socket address syntax",
            "must be an address and a port, such as 127.0.0.1:7420",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is typed wrong is told in three lines at most, the first of which names it.
    #[test]
    fn usage_errors_have_three_lines_at_most() {
        for (words, first) in [
            (&["list", "--frob"][..], "unexpected argument '--frob' found"),
            (
                &["break", "x"],
                "the following required arguments were not provided: --reason <TEXT>",
            ),
            (&["lst"], "unrecognized subcommand 'lst'"),
            (
                &["run", "--ttl", "5", "x", "y"],
                "invalid value '5' for '--ttl <DURATION>'",
            ),
            (
                &["list", "-o", "yaml"],
                "invalid value 'yaml' for '--output <OUTPUT>'",
            ),
            (&["run", "-n", "-w", "1s", "x", "y"], "the argument '--nonblock'"),
            (
                &["watch", "--count", "x"],
                "invalid value 'x' for '--count <N>': must be a whole number",
            ),
            (
                &["serve", "--listen", "x"],
                "invalid value 'x' for '--listen <ADDRESS>': must be an address and a port, such as 127.0.0.1:7420",
            ),
            (
                &["show"],
                "the following required arguments were not provided: <NAME>",
            ),
        ] {
            let words = ["leasehold"].iter().chain(words);
            let error = Cli::command().try_get_matches_from(words).unwrap_err();
            let said = usage(&error.render().to_string());
            assert!(said.starts_with(first), "{said}");
            assert!(
                (2..=3).contains(&said.lines().count()) && said.contains("--help"),
                "{said}"
            );
        }
    }
}
