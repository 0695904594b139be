//! Times and numbers that cannot be are refused with the option's name.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::line::Line;
use super::said::{End, in_form, typed};
use super::tree::{Argument, Verb, verbs};
use super::value::with;
use crate::span;

/// Each with its verb.
fn arguments(wanted: fn(&Argument) -> bool) -> Vec<(Arc<Verb>, Arc<Argument>)> {
    let mut found = Vec::new();
    for verb in verbs() {
        let some = verb.args.iter().filter(|argument| wanted(argument));
        found.extend(some.map(|argument| (Arc::clone(verb), Arc::clone(argument))));
    }
    found
}

/// No time at all, none that goes forward, or one that no clock can hold.
fn no_duration() -> impl Strategy<Value = String> {
    let fixed = [
        "",
        " ",
        "10",
        "-3s",
        "-1",
        "NaN",
        "inf",
        "s",
        "1e3s",
        "0x1s",
        "9223372036854775807s",
        "9223372036854775808s",
        "999999999999999999999h",
        "876000h 1s",
        "soon",
    ];
    prop_oneof![
        2 => select(fixed.map(str::to_owned).to_vec()),
        1 => (876_001_u64..).prop_map(|hours| format!("{hours}h")),
        1 => (3_153_600_000_001_u64..).prop_map(|millis| format!("{millis}ms")),
        1 => (1_i64..).prop_map(|seconds| format!("-{seconds}s")),
        1 => (40..5000_usize).prop_map(|digits| "1".repeat(digits)),
    ]
}

/// Nothing that can be counted.
fn no_number() -> impl Strategy<Value = String> {
    let fixed = [
        "",
        " ",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "x",
        "18446744073709551616",
        "٣",
        "1 ",
        "--",
        "NaN",
    ];
    prop_oneof![
        2 => select(fixed.map(str::to_owned).to_vec()),
        1 => any::<i64>().prop_filter("negative", |number| *number < 0).prop_map(|number| number.to_string()),
        1 => (21..5000_usize).prop_map(|digits| "9".repeat(digits)),
    ]
}

fn refused(line: &Line, flag: &str) -> Result<(), TestCaseError> {
    let End::Refused(refusal) = typed(&line.words) else {
        return Err(TestCaseError::fail(format!("{line:?} was taken")));
    };
    prop_assert!(refusal.said.contains(&format!("'{flag}")), "{}", refusal.said);
    in_form(line, &refusal)
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_time_that_cannot_be_is_refused_with_the_options_name(
        (line, flag) in (select(arguments(Argument::is_duration)), no_duration()).prop_flat_map(|(one, value)| with(one, value.into()))
    ) {
        refused(&line, &flag)?;
    }

    #[test]
    fn a_number_that_cannot_be_is_refused_with_the_options_name(
        (line, flag) in (select(arguments(Argument::is_number)), no_number()).prop_flat_map(|(one, value)| with(one, value.into()))
    ) {
        refused(&line, &flag)?;
    }

    #[test]
    fn no_time_that_is_taken_is_longer_than_the_longest(text in no_duration(), number in any::<u64>(), unit in "(ns|us|ms|s|m|h|d|w)") {
        for text in [text, format!("{number}{unit}")] {
            if let Ok(taken) = span::parse(&text) {
                prop_assert!(taken <= span::LONGEST, "{}", text);
            }
        }
    }
}

/// All that is known of them is what they take: none may slip through.
#[test]
fn times_and_numbers_are_found_by_what_they_take() {
    let flags = |wanted| -> Vec<String> {
        let found = arguments(wanted);
        assert!(found.iter().all(|(_, argument)| !argument.arg.is_positional()));
        found
            .iter()
            .map(|(verb, argument)| format!("{} {}", verb.path.join(" "), argument.flag()))
            .collect()
    };
    let (times, numbers) = (flags(Argument::is_duration), flags(Argument::is_number));
    for known in [
        "run --ttl",
        "token new --expires",
        "drill soak --window",
        "job submit --backoff",
        "plane replica --keep",
    ] {
        assert!(times.iter().any(|flag| flag == known), "{known}: {times:?}");
    }
    for known in [
        "run --conflict-exit-code",
        "break --fence",
        "plane replica --slots",
        "drill plane --jobs",
        "list --limit",
    ] {
        assert!(numbers.iter().any(|flag| flag == known), "{known}: {numbers:?}");
    }
}
