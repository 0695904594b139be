//! Property: every line is parsed, shows help, or is refused in the form of our messages.

use std::os::unix::ffi::OsStrExt;

use clap::error::ErrorKind;
use leasehold_cli::testing::{ParseOutcome, UsageRefusal, escape_control, parse_line};
use proptest::prelude::*;

use super::command_line::{CommandLine, any_line};
use super::config;
use super::verb_tree::verbs;

// The longest acceptable message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1000;

/// Checks the form that every refusal must have.
pub(super) fn check_form(line: &CommandLine, refusal: &UsageRefusal) -> Result<(), TestCaseError> {
    let UsageRefusal { kind, message: said, code } = refusal;
    let runs = |word: &str| ["run", "elect"].contains(&word);
    match &line.verb {
        Some(verb) => prop_assert_eq!(*code, if runs(verb) { 125 } else { 2 }),
        None if line.words.iter().any(|word| word.to_str().is_some_and(runs)) => {
            prop_assert!([2, 125].contains(code), "{}", code);
        }
        None => prop_assert_eq!(*code, 2),
    }
    // A group of verbs without a verb prints its help instead of a message.
    if *kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Ok(());
    }
    let rows: Vec<_> = said.lines().collect();
    prop_assert!((2..=3).contains(&rows.len()), "{} lines:\n{}", rows.len(), said);
    for row in &rows {
        let rest = row.strip_prefix("leasehold: ").unwrap_or_default();
        prop_assert!(!rest.trim().is_empty(), "an empty line:\n{}", said);
        let hidden = row.chars().find(|letter| letter.is_control() || *letter == '\u{202e}');
        prop_assert_eq!(hidden, None, "a terminal acts on it:\n{:?}", said);
    }
    prop_assert!(said.len() <= MAX_MESSAGE_BYTES, "{} letters:\n{}", said.len(), said);
    prop_assert!(rows[rows.len() - 1].contains("--help"), "no way on:\n{}", said);
    prop_assert!(names_the_problem(line, *kind, rows[0]), "does not name what is wrong:\n{}", said);
    Ok(())
}

/// Whether the first line names the wrong word or the missing argument.
fn names_the_problem(line: &CommandLine, kind: ErrorKind, first: &str) -> bool {
    match kind {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let (Some(from), Some(to)) = (first.find('\''), first.rfind('\'')) else {
                return false;
            };
            // Only the part before the first character that was escaped, redacted or cut.
            let word = first.get(from + 1..to).unwrap_or_default();
            let part = word.split(['…', '*', '\\', '\u{fffd}']).next().unwrap_or_default();
            // clap names a wrong letter of a cluster such as `-abc` by itself.
            let letter = part.strip_prefix('-').filter(|letter| letter.chars().count() == 1);
            line.words.iter().any(|typed| {
                let typed = typed.to_string_lossy();
                let cluster = letter.is_some_and(|letter| typed.starts_with('-') && typed.contains(letter));
                let typed: Vec<_> = typed.split_whitespace().collect();
                cluster || typed.join(" ").contains(part.trim())
            })
        }
        ErrorKind::InvalidUtf8 => {
            let bad = line.words.iter().find(|word| word.to_str().is_none());
            let start =
                bad.map(|word| String::from_utf8_lossy(word.as_bytes()).chars().take(1).collect::<String>());
            start.is_some_and(|start| {
                first.contains("is not UTF-8") && first.contains(&escape_control(&start))
            })
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
    fn every_line_is_parsed_or_refused_with_a_message(line in any_line()) {
        if let ParseOutcome::Refused(refusal) = parse_line(&line.words) {
            check_form(&line, &refusal)?;
        }
    }
}

// If nearly all lines were refused, or none, the properties would prove little.
#[test]
fn some_lines_are_valid_and_some_are_refused() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let mut ends = [0; 3];
    for _ in 0..300 {
        let line = any_line().new_tree(&mut runner).unwrap().current();
        let at = match parse_line(&line.words) {
            ParseOutcome::Parsed(_) => 0,
            ParseOutcome::HelpShown => 1,
            ParseOutcome::Refused(_) => 2,
        };
        ends[at] += 1;
    }
    assert!(ends[0] >= 45 && ends[2] >= 90, "understood, help, refused: {ends:?}");
}
