//! Whatever is given to an option, in a line that is right but for it.

use std::ffi::OsString;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::line::{Line, glued, needed_but};
use super::said::{End, in_form, typed};
use super::tree::{Argument, Verb, verbs};
use super::word::{self, SECRET};

/// `--option=VALUE`, and all that the verb needs besides; and the option.
pub(super) fn with(
    (verb, argument): (Arc<Verb>, Arc<Argument>),
    value: OsString,
) -> impl Strategy<Value = (Line, String)> {
    let flag = argument.flag();
    let id = argument.arg.get_id().clone();
    needed_but(&verb, move |other| *other.arg.get_id() == id).prop_map(move |needed| {
        let mut words: Vec<OsString> = vec!["leasehold".into()];
        words.extend(verb.path.iter().map(Into::into));
        words.push(glued(&format!("{flag}="), &value));
        words.extend(needed.into_iter().flatten());
        let verb = Some(verb.path[0].clone());
        (Line { words, verb }, flag.clone())
    })
}

/// Every option of every verb; those that all verbs share once.
fn options() -> Vec<(Arc<Verb>, Arc<Argument>)> {
    let mut found = Vec::new();
    for (number, verb) in verbs().iter().enumerate() {
        let own = verb
            .args
            .iter()
            .filter(|one| !one.arg.is_positional() && (number == 0 || one.depth > 0));
        found.extend(own.map(|argument| (Arc::clone(verb), Arc::clone(argument))));
    }
    found
}

proptest! {
    #![proptest_config(config(1200))]

    #[test]
    fn a_value_is_taken_or_refused_with_the_options_name(
        (line, flag) in (select(options()), word::hostile()).prop_flat_map(|(one, value)| with(one, value))
    ) {
        if let End::Refused(refusal) = typed(&line.words) {
            in_form(&line, &refusal)?;
            prop_assert!(!refusal.said.contains(SECRET), "{}", refusal.said);
            // Something else may be missing that only this option asks for; what is not text has no option to its name.
            let about = refusal.said.contains(&flag) || refusal.said.contains("not provided") || refusal.said.contains("is not UTF-8");
            prop_assert!(about, "does not name {}:\n{}", flag, refusal.said);
        }
    }
}
