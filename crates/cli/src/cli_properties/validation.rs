//! Property: extreme but accepted values pass a verb's validation, or are refused in the right form.
//!
//! It runs the part of each verb that comes before a store, file or socket is opened.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::policy::{Class, PolicyBook, duration};
use leasehold::{Holder, Name, StoreUrl};
use leasehold_advise::Evidence;
use leasehold_core::RequestOptions;
use leasehold_drill::proxy::Toxic;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use super::command_line::{CommandLine, concat_words, required_args};
use super::config;
use super::refusals::{ParseOutcome, parse_line};
use super::verb_tree::{Argument, Verb, verbs};
use super::words::{self, SECRET};
use crate::args::{Cli, Command};
use crate::drill::DrillCommand;
use crate::job::JobCommand;
use crate::plane::PlaneCommand;
use crate::{advise, message};

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

fn builtin_class(name: &str) -> Arc<Class> {
    let book = PolicyBook::builtin();
    let class = book.class(name, Moment::ZERO);
    class.unwrap_or_else(|_| book.class("scheduler", Moment::ZERO).unwrap())
}

/// Runs the validation that needs no store, file or socket. Returns what was refused.
fn validate(cli: Cli) -> Vec<anyhow::Error> {
    let mut refused: Vec<anyhow::Error> = Vec::new();
    let mut try_name = |name: &str| refused.extend(Name::new(name).err().map(Into::into));
    match &cli.command {
        Command::Run(args) => {
            try_name(&args.name);
            let class = builtin_class(&args.class);
            let grace = leasehold_supervise::effective_grace(args.stop_grace, args.ttl, &class);
            let tweaks = request_options(args.ttl, args.wait, Some(grace));
            refused.extend(tweaks.apply(&class).err().map(Into::into));
        }
        Command::Elect(args) => {
            try_name(&args.name);
            let class = builtin_class(&args.class);
            let grace = leasehold_supervise::effective_grace(args.stop_grace, args.ttl, &class);
            refused.extend(request_options(args.ttl, None, Some(grace)).apply(&class).err().map(Into::into));
        }
        Command::Acquire(args) => {
            try_name(&args.name);
            let tweaks = request_options(args.ttl, args.wait, None);
            refused.extend(tweaks.apply(&builtin_class(&args.class)).err().map(Into::into));
        }
        Command::Advise(args) => {
            match advise::compute_advice(args, &builtin_class(&args.class), &Evidence::default()) {
                Ok((advice, forecasts)) => {
                    for plan in [advice.covering, advice.renewing]
                        .into_iter()
                        .chain(forecasts.iter().map(|(_, one)| one.plan))
                    {
                        let _shown = [plan.ttl, plan.every, plan.margin, plan.takeover].map(duration::human);
                    }
                }
                Err(error) => refused.push(error),
            }
        }
        Command::Job(args) => {
            if let JobCommand::Submit(submit) = &args.command {
                match submit.to_spec() {
                    // A stored spec must parse to the same value.
                    Ok(spec) => {
                        let kept = serde_json::to_string(&spec).unwrap();
                        let read: leasehold_plane::JobSpec = serde_json::from_str(&kept).unwrap();
                        assert_eq!(serde_json::to_string(&read).unwrap(), kept);
                    }
                    Err(error) => refused.push(error),
                }
            }
        }
        Command::Plane(args) => {
            let PlaneCommand::Replica(args) = &args.command;
            refused.extend(args.settings().check().err().map(Into::into));
        }
        Command::Drill(args) => match &args.command {
            DrillCommand::Plane(args) => drop(args.options().takeover_bound()),
            DrillCommand::Proxy(args) => {
                let toxics = args.toxics.iter().map(|words| words.parse::<Toxic>());
                refused.extend(toxics.filter_map(|toxic| toxic.err().map(Into::into)));
            }
            _ => {}
        },
        _ => {}
    }
    if let Some(url) = cli.place.store.as_deref() {
        match StoreUrl::parse(url) {
            Ok(url) => assert!(!format!("{url} {url:?}").contains(SECRET), "{url}"),
            Err(error) => refused.push(error.into()),
        }
    }
    if let Some(holder) = &cli.place.holder {
        refused.extend(Holder::new(holder).err().map(Into::into));
    }
    refused
}

fn request_options(ttl: Option<Duration>, wait: Option<Duration>, grace: Option<Duration>) -> RequestOptions {
    let mut tweaks = RequestOptions::default();
    (tweaks.ttl, tweaks.wait, tweaks.stop_grace) = (ttl, wait, grace);
    tweaks
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn extreme_values_are_accepted_or_refused_with_a_message(line in extreme_lines()) {
        if let ParseOutcome::Parsed(cli) = parse_line(&line.words) {
            let url = cli.place.store.is_some();
            for error in validate(*cli) {
                let said = message::prefix_lines(&message::error_text(&error));
                prop_assert!((1..=3).contains(&said.lines().count()), "{}", said);
                prop_assert!(said.chars().all(|letter| letter == '\n' || !letter.is_control()), "{:?}", said);
                prop_assert!(!url || !said.starts_with("leasehold: store") || !said.contains(SECRET), "{}", said);
            }
        }
    }
}
