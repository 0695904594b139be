//! Property: a global option is accepted before and after the verb, with the same result.

use std::ffi::OsString;
use std::sync::Arc;

use leasehold_cli::testing::{ParseOutcome, definition, parse_line};
use proptest::prelude::*;
use proptest::sample::select;

use super::command_line::{CommandLine, required_args};
use super::config;
use super::verb_tree::{Argument, Verb, verbs};

/// The line with the option after `depth` words of the verb's path.
fn line_with_option_at(verb: &Verb, depth: usize, option: &[OsString], needed: &[OsString]) -> CommandLine {
    let mut words: Vec<OsString> = vec!["leasehold".into()];
    words.extend(verb.path.iter().take(depth).map(Into::into));
    words.extend_from_slice(option);
    words.extend(verb.path.iter().skip(depth).map(Into::into));
    words.extend_from_slice(needed);
    CommandLine { words, verb: None }
}

fn any_global_option() -> impl Strategy<Value = (Arc<Verb>, Arc<Argument>, OsString, Vec<OsString>)> {
    let verbs: Vec<_> = verbs().to_vec();
    select(verbs).prop_flat_map(|verb| {
        let global: Vec<_> = verb.args.iter().filter(|one| one.arg.is_global_set()).cloned().collect();
        let value = select(global).prop_flat_map(|global| (select(global.accepted.clone()), Just(global)));
        (Just(Arc::clone(&verb)), value, required_args(&verb))
            .prop_map(|(verb, (value, global), needed)| (verb, global, value, needed.concat()))
    })
}

proptest! {
    #![proptest_config(config(160))]

    #[test]
    fn a_global_option_may_stand_before_and_behind_the_verb((verb, global, value, needed) in any_global_option()) {
        let option = [OsString::from(global.flag()), value.clone()];
        let mut read = Vec::new();
        for depth in global.depth..=verb.path.len() {
            let line = line_with_option_at(&verb, depth, &option, &needed);
            match parse_line(&line.words) {
                ParseOutcome::Parsed(cli) => read.push(format!("{cli:?}")),
                ParseOutcome::Refused(refusal) => prop_assert!(false, "{:?}\n{}", line, refusal.message),
                ParseOutcome::HelpShown => prop_assert!(false, "{:?}", line),
            }
        }
        prop_assert!(read[0].contains(&format!("{value:?}")), "{} is not in {}", global.flag(), read[0]);
        for other in &read[1..] {
            prop_assert_eq!(other, &read[0]);
        }
    }
}

// A new option of `leasehold` itself that is not global would only work before the verb.
#[test]
fn every_option_of_leasehold_itself_is_global() {
    let definition = definition();
    let found: Vec<_> =
        definition.get_arguments().map(|arg| (arg.get_id().as_str(), arg.is_global_set())).collect();
    assert_eq!(found, [("store", true), ("policies", true), ("holder", true)]);
}
