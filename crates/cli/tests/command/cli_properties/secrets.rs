//! Property: a password in a URL is never repeated.

use leasehold_cli::testing::{ParseOutcome, parse_line};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::command_line::{CommandLine, any_line, concat_words, required_args};
use super::config;
use super::refusals::check_form;
use super::verb_tree::{Argument, verbs};
use super::words::{SECRET, secret_url};

fn takes_url(argument: &Argument) -> bool {
    let names = argument.arg.get_value_names().unwrap_or_default();
    names.iter().any(|name| name.contains("URL"))
}

proptest! {
    #![proptest_config(config(400))]

    /// In any position: as a value, as an extra word, as a verb.
    #[test]
    fn no_refusal_repeats_a_password(line in any_line(), url in secret_url(), at in any::<Index>()) {
        let mut line = CommandLine { verb: None, ..line };
        line.words.insert(1 + at.index(line.words.len()), url);
        if let ParseOutcome::Refused(refusal) = parse_line(&line.words) {
            prop_assert!(!refusal.message.contains(SECRET), "{}\n{}", format!("{line:?}"), refusal.message);
            check_form(&line, &refusal)?;
        }
    }

    /// Not even in the `Debug` output of the parsed arguments.
    #[test]
    fn debug_of_parsed_arguments_shows_no_password(
        (line, flag) in select(verbs().to_vec()).prop_flat_map(|verb| {
            let urls: Vec<_> = verb.args.iter().filter(|argument| takes_url(argument)).cloned().collect();
            (required_args(&verb), select(urls), secret_url(), any::<bool>()).prop_map(move |(needed, argument, url, glue)| {
                let mut words = vec!["leasehold".into()];
                words.extend(verb.path.iter().map(Into::into));
                if glue {
                    words.push(concat_words(&format!("{}=", argument.flag()), &url));
                } else {
                    words.extend([argument.flag().into(), url]);
                }
                words.extend(needed.into_iter().flatten());
                (CommandLine { words, verb: None }, argument.flag())
            })
        })
    ) {
        match parse_line(&line.words) {
            ParseOutcome::Parsed(cli) => prop_assert!(!format!("{cli:?}").contains(SECRET), "{}", flag),
            ParseOutcome::Refused(refusal) => prop_assert!(!refusal.message.contains(SECRET), "{}", refusal.message),
            ParseOutcome::HelpShown => {}
        }
    }
}
