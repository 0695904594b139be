//! What is said about words that cannot be understood.
//!
//! clap knows what is wrong and how it is typed. Here that gets the form that everything else is said in, and what was typed is
//! repeated in such a way that it fits a line, that no terminal acts on it and that no password is shown.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::say::plain;

/// As much of a word as is repeated; the library's own messages show as much.
const SHOWN: usize = 60;

/// What is wrong, what was probably meant, how it is typed: at most three lines.
pub(crate) fn told(mut error: clap::Error, words: &[OsString]) -> String {
    let ours = ours(&error, words);
    repeat_safely(&mut error);
    let mut lines = lines(&error.render().to_string());
    if let (Some(ours), Some(first)) = (ours, lines.first_mut()) {
        *first = ours;
    }
    lines.join("\n")
}

/// The verb that was meant, as far as it can be told from words that could not be understood.
pub(crate) fn meant(words: &[OsString]) -> Option<String> {
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
            // Nobody can say whether the next word is the value of an option that is not known.
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

/// A word as it can be repeated.
fn shown(word: &str) -> String {
    let safe = plain(&leasehold::redact(word));
    match safe.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &safe[..end]),
        None => safe,
    }
}

/// Where clap's own words name nothing, or name a secret.
fn ours(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidUtf8 => {
            let bad = words.iter().filter(|word| word.to_str().is_none());
            let bad: Vec<_> = bad
                .take(3)
                .map(|word| format!("'{}'", shown(&word.to_string_lossy())))
                .collect();
            Some(format!("{} is not UTF-8", bad.join(" or ")))
        }
        // The reason repeats the value in its own way.
        ErrorKind::ValueValidation => {
            let (value, arg) = (
                context(ContextKind::InvalidValue)?,
                context(ContextKind::InvalidArg)?,
            );
            (leasehold::redact(value) != *value)
                .then(|| format!("invalid value '{}' for '{arg}'", shown(value)))
        }
        _ => None,
    }
}

/// Puts what can be repeated in the place of what was typed.
fn repeat_safely(error: &mut clap::Error) {
    for kind in [
        ContextKind::InvalidArg,
        ContextKind::InvalidValue,
        ContextKind::InvalidSubcommand,
    ] {
        let Some(ContextValue::String(typed)) = error.get(kind).cloned() else {
            continue;
        };
        let safe = shown(&typed);
        if safe == typed {
            continue;
        }
        if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
            let tips = tips
                .iter()
                .map(|tip| tip.ansi().to_string().replace(&typed, &safe));
            let tips = tips.map(StyledStr::from).collect();
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
        error.insert(kind, ContextValue::String(safe));
    }
}

/// What clap says, in the form that everything else is said in.
fn lines(rendered: &str) -> Vec<String> {
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
    lines
}

/// What the standard library says about a value that is not one, in words that say what is.
fn allowed(wrong: &str) -> String {
    wrong
        .replace("invalid digit found in string", "must be a whole number")
        .replace("cannot parse integer from empty string", "must be a whole number")
        .replace(
            "number too large to fit in target type",
            "the number is too large",
        )
        .replace(
            "number too small to fit in target type",
            "the number is too small",
        )
        .replace(
            "invalid socket address syntax",
            "must be an address and a port, such as 127.0.0.1:7420",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        let words: Vec<OsString> = ["leasehold"].iter().chain(words).map(OsString::from).collect();
        told(crate::parse(&words).unwrap_err(), &words)
    }

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
            let said = said(words);
            assert!(said.starts_with(first), "{said}");
            assert!(
                (2..=3).contains(&said.lines().count()) && said.contains("--help"),
                "{said}"
            );
        }
    }
}
