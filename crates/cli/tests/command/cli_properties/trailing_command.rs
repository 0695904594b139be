//! Property: a trailing command is passed on byte for byte, and none of its words is parsed as our option.

use std::ffi::OsString;
use std::sync::Arc;

use clap::error::ErrorKind;
use leasehold_cli::testing::{ParseOutcome, parse_line};
use proptest::prelude::*;
use proptest::sample::select;

use super::command_line::{CommandLine, any_word, required_args_except};
use super::config;
use super::verb_tree::{Verb, verbs};

fn command_verbs() -> Vec<Arc<Verb>> {
    let runs = |verb: &&Arc<Verb>| verb.args.iter().any(|argument| argument.is_command());
    verbs().iter().filter(runs).cloned().collect()
}

// Jobs are stored as JSON, which cannot hold bytes that are not UTF-8.
fn takes_bytes(verb: &Verb) -> bool {
    verb.path[0] != "job"
}

/// Valid lines without their trailing command.
fn lines_before_command() -> impl Strategy<Value = (Arc<Verb>, Vec<OsString>)> {
    select(command_verbs()).prop_flat_map(|verb| {
        required_args_except(&verb, |argument| argument.is_command()).prop_map(move |needed| {
            let mut words: Vec<OsString> = vec!["leasehold".into()];
            words.extend(verb.path.iter().map(Into::into));
            words.extend(needed.into_iter().flatten());
            (Arc::clone(&verb), words)
        })
    })
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_command_is_passed_on_byte_for_byte(
        ((verb, begun), command) in lines_before_command().prop_flat_map(|(verb, begun)| {
            let command = prop::collection::vec(any_word(&verb), 1..6);
            (Just((verb, begun)), command)
        }),
        dashes in any::<bool>(),
    ) {
        let with = |command: &[OsString], dashes: bool| {
            let mut words = begun.clone();
            // Without `--`, the first positional word ends the options.
            words.push(if dashes { "--" } else { "cmd" }.into());
            words.extend_from_slice(command);
            CommandLine { words, verb: None }
        };
        let line = with(&command, dashes);
        let mut expected: Vec<OsString> = if dashes { Vec::new() } else { vec!["cmd".into()] };
        expected.extend(command);
        match parse_line(&line.words) {
            ParseOutcome::Parsed(mut cli) => {
                let given = cli.take_command();
                prop_assert_eq!(given, Some(expected), "teach `handed` where {:?} keeps its command", &verb.path);
                let ParseOutcome::Parsed(mut plain) = parse_line(&with(&["x".into()], true).words) else {
                    return Err(TestCaseError::fail(format!("{:?} takes no command", verb.path)));
                };
                plain.take_command();
                prop_assert_eq!(format!("{cli:?}"), format!("{plain:?}"), "{:?} took an option of its command's", line);
            }
            ParseOutcome::Refused(refusal) => {
                let text = expected.iter().all(|word| word.to_str().is_some());
                let refused = !takes_bytes(&verb) && !text && refusal.kind == ErrorKind::InvalidUtf8;
                prop_assert!(refused, "{:?}\n{}", line, refusal.message);
            }
            ParseOutcome::HelpShown => prop_assert!(false, "{:?} was taken for a wish for help", line),
        }
    }
}

#[test]
fn run_elect_and_job_submit_take_a_command() {
    let found: Vec<_> = command_verbs().iter().map(|verb| verb.path.join(" ")).collect();
    assert_eq!(found, ["run", "elect", "job submit"]);
}
