//! Messages for invalid arguments.
//!
//! clap detects the error. This module gives it the form of all other messages. What the user typed is
//! shortened, redacted and escaped before it is repeated.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::message::escape_control;

// The longest part of an argument that a message repeats; the library's messages use the same limit.
const MAX_SHOWN_CHARS: usize = 60;

/// The error, the likely correction and the usage: at most three lines.
pub(crate) fn usage_error_text(mut error: clap::Error, words: &[OsString]) -> String {
    // Before `make_values_safe`, which replaces the typed values that this reads.
    let ours = own_message(&error, words);
    make_values_safe(&mut error);
    let mut lines = message_lines(&error.render().to_string());
    if let (Some(ours), Some(first)) = (ours, lines.first_mut()) {
        *first = ours;
    }
    lines.join("\n")
}

/// The verb of an invalid command line, if it can be found.
pub(crate) fn intended_verb(words: &[OsString]) -> Option<String> {
    let cli = Cli::command();
    let mut words = words.iter().skip(1).map(|word| word.to_string_lossy());
    let mut doubtful = false;
    while let Some(word) = words.next() {
        if word == "--" {
            return None;
        }
        if word.starts_with('-') {
            let name = word.trim_start_matches('-');
            let known = cli.get_arguments().find(|arg| arg.get_long() == Some(name));
            if known.is_some_and(|arg| arg.get_action().takes_values()) {
                words.next();
            }
            // The next word may be the value of this unknown option.
            doubtful = known.is_none();
            continue;
        }
        match cli.find_subcommand(word.as_ref()) {
            Some(verb) => return Some(verb.get_name().to_owned()),
            None if doubtful => doubtful = false,
            None => return None,
        }
    }
    None
}

/// An argument, redacted, escaped and shortened.
fn safe_excerpt(word: &str) -> String {
    let safe = escape_control(&leasehold::redact(word));
    match safe.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &safe[..end]),
        None => safe,
    }
}

/// Our own first line where clap's names nothing, or would show a secret.
fn own_message(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidUtf8 => {
            let bad = words.iter().filter(|word| word.to_str().is_none());
            let bad: Vec<_> =
                bad.take(3).map(|word| format!("'{}'", safe_excerpt(&word.to_string_lossy()))).collect();
            Some(format!("{} is not UTF-8", bad.join(" or ")))
        }
        // clap's reason may quote the value unredacted.
        ErrorKind::ValueValidation => {
            let (value, arg) = (context(ContextKind::InvalidValue)?, context(ContextKind::InvalidArg)?);
            (leasehold::redact(value) != *value)
                .then(|| format!("invalid value '{}' for '{arg}'", safe_excerpt(value)))
        }
        _ => None,
    }
}

/// Replaces typed values in clap's error by their safe form.
fn make_values_safe(error: &mut clap::Error) {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand] {
        let Some(ContextValue::String(typed)) = error.get(kind).cloned() else {
            continue;
        };
        let safe = safe_excerpt(&typed);
        if safe == typed {
            continue;
        }
        if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
            let tips = tips.iter().map(|tip| tip.ansi().to_string().replace(&typed, &safe));
            let tips = tips.map(StyledStr::from).collect();
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
        error.insert(kind, ContextValue::String(safe));
    }
}

/// Converts clap's rendered error to our message lines.
fn message_lines(rendered: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut typed = None;
    for paragraph in rendered.split("\n\n") {
        let one: Vec<_> = paragraph.split_whitespace().collect();
        let one = one.join(" ");
        if let Some(wrong) = one.strip_prefix("error: ") {
            lines.push(rewrite_parse_errors(wrong));
        } else if one.starts_with("tip: ") {
            // A later tip replaces an earlier one, so that the message keeps to three lines.
            lines.truncate(1);
            lines.push(one.replace(" tip: ", "; "));
        } else if one.starts_with("Usage: ") {
            typed = paragraph.trim().lines().next().map(|first| first.replacen("Usage", "usage", 1));
        }
    }
    lines.push(
        typed.map_or_else(
            || "for more, try --help".to_owned(),
            |typed| format!("{typed}; for more, try --help"),
        ),
    );
    lines
}

/// Replaces the standard library's parse errors by texts that say what is allowed.
fn rewrite_parse_errors(wrong: &str) -> String {
    wrong
        .replace("invalid digit found in string", "must be a whole number")
        .replace("cannot parse integer from empty string", "must be a whole number")
        .replace("number too large to fit in target type", "the number is too large")
        .replace("number too small to fit in target type", "the number is too small")
        .replace("invalid socket address syntax", "must be an address and a port, such as 127.0.0.1:7420")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(words: &[&str]) -> String {
        let words: Vec<OsString> = ["leasehold"].iter().chain(words).map(OsString::from).collect();
        usage_error_text(crate::parse(&words).unwrap_err(), &words)
    }

    #[test]
    fn usage_errors_have_three_lines_at_most() {
        for (words, first) in [
            (&["list", "--frob"][..], "unexpected argument '--frob' found"),
            (&["break", "x"], "the following required arguments were not provided: --reason <TEXT>"),
            (&["lst"], "unrecognized subcommand 'lst'"),
            (&["run", "--ttl", "5", "x", "y"], "invalid value '5' for '--ttl <DURATION>'"),
            (&["list", "-o", "yaml"], "invalid value 'yaml' for '--output <OUTPUT>'"),
            (&["run", "-n", "-w", "1s", "x", "y"], "the argument '--nonblock'"),
            (&["watch", "--count", "x"], "invalid value 'x' for '--count <N>': must be a whole number"),
            (
                &["serve", "--listen", "x"],
                "invalid value 'x' for '--listen <ADDRESS>': must be an address and a port, such as 127.0.0.1:7420",
            ),
            (&["show"], "the following required arguments were not provided: <NAME>"),
        ] {
            let message = usage_error(words);
            assert!(message.starts_with(first), "{message}");
            assert!((2..=3).contains(&message.lines().count()) && message.contains("--help"), "{message}");
        }
    }
}
