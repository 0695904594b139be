//! Property: any value of any option is accepted, or refused with the option's name.

use std::ffi::OsString;
use std::sync::Arc;

use leasehold_cli::testing::{ParseOutcome, parse_line};
use proptest::prelude::*;
use proptest::sample::select;

use super::command_line::{CommandLine, concat_words, required_args_except};
use super::config;
use super::refusals::check_form;
use super::verb_tree::{Argument, Verb, verbs};
use super::words::{self, SECRET};

/// A line with `--option=VALUE` and the verb's other required arguments; and the option.
pub(super) fn line_with_option(
    (verb, argument): (Arc<Verb>, Arc<Argument>),
    value: OsString,
) -> impl Strategy<Value = (CommandLine, String)> {
    let flag = argument.flag();
    let id = argument.arg.get_id().clone();
    required_args_except(&verb, move |other| *other.arg.get_id() == id).prop_map(move |needed| {
        let mut words: Vec<OsString> = vec!["leasehold".into()];
        words.extend(verb.path.iter().map(Into::into));
        words.push(concat_words(&format!("{flag}="), &value));
        words.extend(needed.into_iter().flatten());
        let verb = Some(verb.path[0].clone());
        (CommandLine { words, verb }, flag.clone())
    })
}

/// Every option of every verb; options of all verbs appear once.
fn all_options() -> Vec<(Arc<Verb>, Arc<Argument>)> {
    let mut found = Vec::new();
    for (number, verb) in verbs().iter().enumerate() {
        let own = verb.args.iter().filter(|one| !one.arg.is_positional() && (number == 0 || one.depth > 0));
        found.extend(own.map(|argument| (Arc::clone(verb), Arc::clone(argument))));
    }
    found
}

proptest! {
    #![proptest_config(config(1200))]

    #[test]
    fn a_value_is_accepted_or_refused_with_the_options_name(
        (line, flag) in (select(all_options()), words::hostile_word()).prop_flat_map(|(one, value)| line_with_option(one, value))
    ) {
        if let ParseOutcome::Refused(refusal) = parse_line(&line.words) {
            check_form(&line, &refusal)?;
            prop_assert!(!refusal.message.contains(SECRET), "{}", refusal.message);
            // Another argument may be missing that only this option requires. An error about invalid
            // UTF-8 names the word instead of the option.
            let about = refusal.message.contains(&flag) || refusal.message.contains("not provided") || refusal.message.contains("is not UTF-8");
            prop_assert!(about, "does not name {}:\n{}", flag, refusal.message);
        }
    }
}
