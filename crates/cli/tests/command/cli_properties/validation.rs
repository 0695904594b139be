//! Property: extreme but accepted values pass a verb's validation, or are refused in the right form.
//!
//! It runs the part of each verb that comes before a store, file or socket is opened.

use std::ffi::OsString;
use std::sync::Arc;

use leasehold::StoreUrl;
use leasehold_cli::testing::{ParseOutcome, error_text, parse_line, prefix_lines};
use leasehold_plane::JobSpec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use super::command_line::{CommandLine, concat_words, required_args};
use super::config;
use super::verb_tree::{Argument, Verb, verbs};
use super::words::{self, SECRET};

/// Values at the edges of what an argument accepts.
fn extreme_value(argument: &Argument) -> BoxedStrategy<OsString> {
    if argument.is_duration() {
        let texts = ["0s", "1ns", "1ms", "100ms", "24h", "24h 1ms", "875999h", "876000h"];
        select(texts.map(OsString::from).to_vec()).boxed()
    } else if argument.is_number() {
        let texts = [
            "0",
            "1",
            "64",
            "255",
            "1024",
            "10000",
            "65535",
            "1000000",
            "4294967295",
            "9007199254740991",
            "18446744073709551615",
        ];
        select(texts.map(OsString::from).to_vec()).boxed()
    } else if argument.arg.get_possible_values().is_empty() {
        prop_oneof![words::hostile_word(), select(argument.accepted.clone())].boxed()
    } else {
        select(argument.accepted.clone()).boxed()
    }
}

fn extreme_lines() -> impl Strategy<Value = CommandLine> {
    let seldom = |verb: &Verb| -> BoxedStrategy<Vec<Option<OsString>>> {
        let options = verb.args.iter().filter(|one| one.takes_value() && !one.arg.is_positional());
        let drawn = |argument: &Arc<Argument>| {
            let flag = format!("{}=", argument.flag());
            // A refused text hides what the numbers beside it would have caused.
            let often = if argument.is_duration() || argument.is_number() { 0.4 } else { 0.1 };
            weighted(often, extreme_value(argument).prop_map(move |value| concat_words(&flag, &value)))
        };
        let drawn: Vec<_> = options.map(drawn).collect();
        drawn.boxed()
    };
    // Most verbs compute nothing from their arguments; those that do are drawn more often.
    let sums: Vec<_> = verbs().iter().filter(|verb| verb.path == ["advise"]).cloned().collect();
    let busy = |verb: &Arc<Verb>| ["run", "advise", "job", "plane", "drill"].contains(&verb.path[0].as_str());
    let (some, others): (Vec<_>, Vec<_>) = verbs().iter().cloned().partition(busy);
    prop_oneof![2 => select(sums), 3 => select(some), 1 => select(others)].prop_flat_map(move |verb| {
        let words = prop::collection::vec(words::hostile_word(), 0..2);
        (seldom(&verb), required_args(&verb), words).prop_map(move |(options, needed, more)| {
            let mut words: Vec<OsString> = vec!["leasehold".into()];
            words.extend(verb.path.iter().map(Into::into));
            words.extend(options.into_iter().flatten());
            words.extend(needed.into_iter().flatten());
            words.extend(more);
            CommandLine { words, verb: None }
        })
    })
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn extreme_values_are_accepted_or_refused_with_a_message(line in extreme_lines()) {
        if let ParseOutcome::Parsed(cli) = parse_line(&line.words) {
            if let Some(Ok(url)) = cli.store().map(StoreUrl::parse) {
                prop_assert!(!format!("{url} {url:?}").contains(SECRET), "{}", url);
            }
            // A stored spec must parse to the same value.
            if let Some(Ok(spec)) = cli.job_spec() {
                let kept = serde_json::to_string(&spec).unwrap();
                let read: JobSpec = serde_json::from_str(&kept).unwrap();
                prop_assert_eq!(serde_json::to_string(&read).unwrap(), kept);
            }
            for error in cli.validate() {
                let message = prefix_lines(&error_text(&error));
                prop_assert!((1..=3).contains(&message.lines().count()), "{}", message);
                prop_assert!(message.chars().all(|letter| letter == '\n' || !letter.is_control()), "{:?}", message);
                prop_assert!(cli.store().is_none() || !message.starts_with("leasehold: store") || !message.contains(SECRET), "{}", message);
            }
        }
    }
}
