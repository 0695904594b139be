//! Every line is understood, or ends in help, or is refused in the form that refusals have.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::error::ErrorKind;
use proptest::prelude::*;

use super::config;
use super::line::{Line, lines};
use super::tree::verbs;
use crate::args::Cli;
use crate::{exit, say, usage};

/// More than this nobody reads.
const LONGEST: usize = 1000;

/// How a line ends before any verb begins.
pub(super) enum End {
    Understood(Box<Cli>),
    /// Help or the version, on standard output.
    Shown,
    Refused(Refusal),
}

/// What a person sees, and what a script.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) said: String,
    pub(super) code: u8,
}

/// As `main` does it.
pub(super) fn typed(words: &[OsString]) -> End {
    let error = match crate::parse(words) {
        Ok(cli) => return End::Understood(Box::new(cli)),
        Err(error) => error,
    };
    if !error.use_stderr() {
        return End::Shown;
    }
    let kind = error.kind();
    End::Refused(Refusal {
        kind,
        said: say::lined(&usage::told(error, words)),
        code: exit::usage_code(words),
    })
}

/// What holds of every refusal.
pub(super) fn in_form(line: &Line, refusal: &Refusal) -> Result<(), TestCaseError> {
    let Refusal { kind, said, code } = refusal;
    let runs = |word: &str| ["run", "elect"].contains(&word);
    match &line.verb {
        Some(verb) => prop_assert_eq!(*code, if runs(verb) { 125 } else { 2 }),
        None if line.words.iter().any(|word| word.to_str().is_some_and(runs)) => {
            prop_assert!([2, 125].contains(code), "{}", code);
        }
        None => prop_assert_eq!(*code, 2),
    }
    // Whoever types a group of verbs only is shown what there is.
    if *kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Ok(());
    }
    let rows: Vec<_> = said.lines().collect();
    prop_assert!((2..=3).contains(&rows.len()), "{} lines:\n{}", rows.len(), said);
    for row in &rows {
        let rest = row.strip_prefix("leasehold: ").unwrap_or_default();
        prop_assert!(!rest.trim().is_empty(), "an empty line:\n{}", said);
        let hidden = row
            .chars()
            .find(|letter| letter.is_control() || *letter == '\u{202e}');
        prop_assert_eq!(hidden, None, "a terminal acts on it:\n{:?}", said);
    }
    prop_assert!(said.len() <= LONGEST, "{} letters:\n{}", said.len(), said);
    prop_assert!(rows[rows.len() - 1].contains("--help"), "no way on:\n{}", said);
    prop_assert!(
        names(line, *kind, rows[0]),
        "does not name what is wrong:\n{}",
        said
    );
    Ok(())
}

/// The word that is wrong, or the argument that is missing or has the wrong value.
fn names(line: &Line, kind: ErrorKind, first: &str) -> bool {
    match kind {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let (Some(from), Some(to)) = (first.find('\''), first.rfind('\'')) else {
                return false;
            };
            // As far as it was repeated letter by letter.
            let word = first.get(from + 1..to).unwrap_or_default();
            let part = word
                .split(['…', '*', '\\', '\u{fffd}'])
                .next()
                .unwrap_or_default();
            // One of several letters behind one dash is named by itself.
            let letter = part
                .strip_prefix('-')
                .filter(|letter| letter.chars().count() == 1);
            line.words.iter().any(|typed| {
                let typed = typed.to_string_lossy();
                let cluster = letter.is_some_and(|letter| typed.starts_with('-') && typed.contains(letter));
                let typed: Vec<_> = typed.split_whitespace().collect();
                cluster || typed.join(" ").contains(part.trim())
            })
        }
        ErrorKind::InvalidUtf8 => {
            let bad = line.words.iter().find(|word| word.to_str().is_none());
            let start = bad.map(|word| {
                String::from_utf8_lossy(word.as_bytes())
                    .chars()
                    .take(1)
                    .collect::<String>()
            });
            start.is_some_and(|start| first.contains("is not UTF-8") && first.contains(&say::plain(&start)))
        }
        ErrorKind::MissingSubcommand => first.contains("requires a subcommand"),
        _ => verbs().iter().flat_map(|verb| &verb.args).any(|argument| {
            let flag = argument.flag();
            let value = argument.arg.get_value_names().and_then(<[_]>::first);
            (!flag.is_empty() && first.contains(&flag))
                || value.is_some_and(|value| {
                    first.contains(&format!("<{value}>")) || first.contains(&format!("[{value}]"))
                })
        }),
    }
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn every_line_is_understood_or_refused_in_words(line in lines()) {
        if let End::Refused(refusal) = typed(&line.words) {
            in_form(&line, &refusal)?;
        }
    }
}

/// If nearly all were refused, or none, the lines would show less than they seem to.
#[test]
fn some_lines_are_right_and_some_are_wrong() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let mut ends = [0; 3];
    for _ in 0..300 {
        let line = lines().new_tree(&mut runner).unwrap().current();
        let at = match typed(&line.words) {
            End::Understood(_) => 0,
            End::Shown => 1,
            End::Refused(_) => 2,
        };
        ends[at] += 1;
    }
    assert!(
        ends[0] >= 45 && ends[2] >= 90,
        "understood, help, refused: {ends:?}"
    );
}
