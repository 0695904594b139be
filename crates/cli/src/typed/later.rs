//! What a verb makes of its words before it opens anything: the least and the most of everything goes through its sums.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::leasehold_core::Tweaks;
use leasehold::policy::{Class, PolicyBook, duration};
use leasehold::{Holder, Name, StoreUrl};
use leasehold_advise::Evidence;
use leasehold_drill::proxy::Toxic;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::line::{Line, glued, needed};
use super::said::{End, typed};
use super::tree::{Argument, Verb, verbs};
use super::word::{self, SECRET};
use crate::args::{Cli, Command};
use crate::drill::DrillCommand;
use crate::job::JobCommand;
use crate::plane::PlaneCommand;
use crate::{advise, run, say};

/// The least and the most that is taken, and what is no less a value for being odd.
fn extreme(argument: &Argument) -> BoxedStrategy<OsString> {
    if argument.is_duration() {
        let texts = [
            "0s", "1ns", "1ms", "100ms", "24h", "24h 1ms", "875999h", "876000h",
        ];
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
        prop_oneof![word::hostile(), select(argument.right.clone())].boxed()
    } else {
        select(argument.right.clone()).boxed()
    }
}

fn extremes() -> impl Strategy<Value = Line> {
    let seldom = |verb: &Verb| -> BoxedStrategy<Vec<Option<OsString>>> {
        let options = verb
            .args
            .iter()
            .filter(|one| one.takes_value() && !one.arg.is_positional());
        let drawn = |argument: &Arc<Argument>| {
            let flag = format!("{}=", argument.flag());
            // A word that is refused hides what the numbers beside it would have done.
            let often = if argument.is_duration() || argument.is_number() {
                0.4
            } else {
                0.1
            };
            weighted(
                often,
                extreme(argument).prop_map(move |value| glued(&flag, &value)),
            )
        };
        let drawn: Vec<_> = options.map(drawn).collect();
        drawn.boxed()
    };
    // Most verbs do no sums; those that do get more of the draws, and most the one with the longest.
    let sums: Vec<_> = verbs()
        .iter()
        .filter(|verb| verb.path == ["advise"])
        .cloned()
        .collect();
    let busy = |verb: &Arc<Verb>| ["run", "advise", "job", "plane", "drill"].contains(&verb.path[0].as_str());
    let (some, others): (Vec<_>, Vec<_>) = verbs().iter().cloned().partition(busy);
    prop_oneof![2 => select(sums), 3 => select(some), 1 => select(others)].prop_flat_map(move |verb| {
        let words = prop::collection::vec(word::hostile(), 0..2);
        (seldom(&verb), needed(&verb), words).prop_map(move |(options, needed, more)| {
            let mut words: Vec<OsString> = vec!["leasehold".into()];
            words.extend(verb.path.iter().map(Into::into));
            words.extend(options.into_iter().flatten());
            words.extend(needed.into_iter().flatten());
            words.extend(more);
            Line { words, verb: None }
        })
    })
}

fn builtin(name: &str) -> Arc<Class> {
    let book = PolicyBook::builtin();
    let class = book.class(name, Moment::ZERO);
    class.unwrap_or_else(|_| book.class("scheduler", Moment::ZERO).unwrap())
}

/// Runs everything that can be run without a store, a file or a socket; answers what was refused.
fn begun(cli: Cli) -> Vec<anyhow::Error> {
    let mut refused: Vec<anyhow::Error> = Vec::new();
    let mut try_name = |name: &str| refused.extend(Name::new(name).err().map(Into::into));
    match &cli.command {
        Command::Run(args) => {
            try_name(&args.name);
            let class = builtin(&args.class);
            let grace = run::grace_of(args.stop_grace, args.ttl, &class);
            let tweaks = tweaks(args.ttl, args.wait, Some(grace));
            refused.extend(tweaks.apply(&class).err().map(Into::into));
        }
        Command::Elect(args) => {
            try_name(&args.name);
            let class = builtin(&args.class);
            let grace = run::grace_of(args.stop_grace, args.ttl, &class);
            refused.extend(
                tweaks(args.ttl, None, Some(grace))
                    .apply(&class)
                    .err()
                    .map(Into::into),
            );
        }
        Command::Acquire(args) => {
            try_name(&args.name);
            let tweaks = tweaks(args.ttl, args.wait, None);
            refused.extend(tweaks.apply(&builtin(&args.class)).err().map(Into::into));
        }
        Command::Advise(args) => match advise::sums(args, &builtin(&args.class), &Evidence::default()) {
            Ok((advice, forecasts)) => {
                for plan in [advice.covering, advice.renewing]
                    .into_iter()
                    .chain(forecasts.iter().map(|(_, one)| one.plan))
                {
                    let _shown = [plan.ttl, plan.every, plan.margin, plan.takeover].map(duration::human);
                }
            }
            Err(error) => refused.push(error),
        },
        Command::Job(args) => {
            if let JobCommand::Submit(submit) = &args.command {
                match submit.spec() {
                    // What is kept reads back.
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
            DrillCommand::Plane(args) => drop(args.bound()),
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

fn tweaks(ttl: Option<Duration>, wait: Option<Duration>, grace: Option<Duration>) -> Tweaks {
    let mut tweaks = Tweaks::default();
    (tweaks.ttl, tweaks.wait, tweaks.stop_grace) = (ttl, wait, grace);
    tweaks
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn the_least_and_the_most_of_everything_is_done_or_refused_in_words(line in extremes()) {
        if let End::Understood(cli) = typed(&line.words) {
            let url = cli.place.store.is_some();
            for error in begun(*cli) {
                let said = say::lined(&say::told(&error));
                prop_assert!((1..=3).contains(&said.lines().count()), "{}", said);
                prop_assert!(said.chars().all(|letter| letter == '\n' || !letter.is_control()), "{:?}", said);
                prop_assert!(!url || !said.starts_with("leasehold: store") || !said.contains(SECRET), "{}", said);
            }
        }
    }
}
