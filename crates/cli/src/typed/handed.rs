//! A command that is handed on is handed on byte for byte, and nothing of it is an option of ours.

use std::ffi::OsString;
use std::sync::Arc;

use clap::error::ErrorKind;
use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::line::{Line, any_word, needed_but};
use super::said::{End, typed};
use super::tree::{Verb, verbs};
use crate::args::{Cli, Command};
use crate::job::JobCommand;

/// The verbs that take a command.
fn running() -> Vec<Arc<Verb>> {
    let runs = |verb: &&Arc<Verb>| verb.args.iter().any(|argument| argument.is_command());
    verbs().iter().filter(runs).cloned().collect()
}

/// Takes the command out of what was understood.
fn handed(cli: &mut Cli) -> Option<Vec<OsString>> {
    match &mut cli.command {
        Command::Run(args) => Some(std::mem::take(&mut args.argv)),
        Command::Elect(args) => Some(std::mem::take(&mut args.argv)),
        Command::Job(args) => match &mut args.command {
            JobCommand::Submit(args) => {
                let argv = std::mem::take(&mut args.argv);
                Some(argv.into_iter().map(OsString::from).collect())
            }
            _ => None,
        },
        _ => None,
    }
}

/// Jobs are kept as JSON, which is text.
fn takes_bytes(verb: &Verb) -> bool {
    verb.path[0] != "job"
}

/// A line up to the command.
fn begun() -> impl Strategy<Value = (Arc<Verb>, Vec<OsString>)> {
    select(running()).prop_flat_map(|verb| {
        needed_but(&verb, |argument| argument.is_command()).prop_map(move |needed| {
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
    fn a_command_is_handed_on_byte_for_byte(
        ((verb, begun), command) in begun().prop_flat_map(|(verb, begun)| {
            let command = prop::collection::vec(any_word(&verb), 1..6);
            (Just((verb, begun)), command)
        }),
        dashes in any::<bool>(),
    ) {
        let with = |command: &[OsString], dashes: bool| {
            let mut words = begun.clone();
            // Without dashes options end at the first word that is none.
            words.push(if dashes { "--" } else { "cmd" }.into());
            words.extend_from_slice(command);
            Line { words, verb: None }
        };
        let line = with(&command, dashes);
        let mut expected: Vec<OsString> = if dashes { Vec::new() } else { vec!["cmd".into()] };
        expected.extend(command);
        match typed(&line.words) {
            End::Understood(mut cli) => {
                let given = handed(&mut cli);
                prop_assert_eq!(given, Some(expected), "teach `handed` where {:?} keeps its command", &verb.path);
                let End::Understood(mut plain) = typed(&with(&["x".into()], true).words) else {
                    return Err(TestCaseError::fail(format!("{:?} takes no command", verb.path)));
                };
                handed(&mut plain);
                prop_assert_eq!(format!("{cli:?}"), format!("{plain:?}"), "{:?} took an option of its command's", line);
            }
            End::Refused(refusal) => {
                let text = expected.iter().all(|word| word.to_str().is_some());
                let refused = !takes_bytes(&verb) && !text && refusal.kind == ErrorKind::InvalidUtf8;
                prop_assert!(refused, "{:?}\n{}", line, refusal.said);
            }
            End::Shown => prop_assert!(false, "{:?} was taken for a wish for help", line),
        }
    }
}

#[test]
fn run_elect_and_job_submit_take_a_command() {
    let found: Vec<_> = running().iter().map(|verb| verb.path.join(" ")).collect();
    assert_eq!(found, ["run", "elect", "job submit"]);
}
