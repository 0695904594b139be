//! A password that is typed into a URL is not repeated.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::config;
use super::line::{Line, glued, lines, needed};
use super::said::{End, in_form, typed};
use super::tree::{Argument, verbs};
use super::word::{SECRET, secret};

/// A URL is what it takes.
fn takes_url(argument: &Argument) -> bool {
    let names = argument.arg.get_value_names().unwrap_or_default();
    names.iter().any(|name| name.contains("URL"))
}

proptest! {
    #![proptest_config(config(400))]

    /// Wherever it stands: as a value, as a word too many, as a verb.
    #[test]
    fn no_refusal_repeats_a_password(line in lines(), url in secret(), at in any::<Index>()) {
        let mut line = Line { verb: None, ..line };
        line.words.insert(1 + at.index(line.words.len()), url);
        if let End::Refused(refusal) = typed(&line.words) {
            prop_assert!(!refusal.said.contains(SECRET), "{}\n{}", format!("{line:?}"), refusal.said);
            in_form(&line, &refusal)?;
        }
    }

    /// Not even to whoever prints all that was understood.
    #[test]
    fn what_was_understood_shows_no_password(
        (line, flag) in select(verbs().to_vec()).prop_flat_map(|verb| {
            let urls: Vec<_> = verb.args.iter().filter(|argument| takes_url(argument)).cloned().collect();
            (needed(&verb), select(urls), secret(), any::<bool>()).prop_map(move |(needed, argument, url, glue)| {
                let mut words = vec!["leasehold".into()];
                words.extend(verb.path.iter().map(Into::into));
                if glue {
                    words.push(glued(&format!("{}=", argument.flag()), &url));
                } else {
                    words.extend([argument.flag().into(), url]);
                }
                words.extend(needed.into_iter().flatten());
                (Line { words, verb: None }, argument.flag())
            })
        })
    ) {
        match typed(&line.words) {
            End::Understood(cli) => prop_assert!(!format!("{cli:?}").contains(SECRET), "{}", flag),
            End::Refused(refusal) => prop_assert!(!refusal.said.contains(SECRET), "{}", refusal.said),
            End::Shown => {}
        }
    }
}
