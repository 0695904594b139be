//! Property: invalid durations and numbers are refused, and the message names the option.

use std::sync::Arc;

use leasehold_cli::testing::{MAX_DURATION, ParseOutcome, parse_duration, parse_line};
use proptest::prelude::*;
use proptest::sample::select;

use super::command_line::CommandLine;
use super::config;
use super::option_values::line_with_option;
use super::refusals::check_form;
use super::verb_tree::{Argument, Verb, verbs};

/// The matching arguments of all verbs.
fn matching_arguments(wanted: fn(&Argument) -> bool) -> Vec<(Arc<Verb>, Arc<Argument>)> {
    let mut found = Vec::new();
    for verb in verbs() {
        let some = verb.args.iter().filter(|argument| wanted(argument));
        found.extend(some.map(|argument| (Arc::clone(verb), Arc::clone(argument))));
    }
    found
}

/// Texts that are no duration, a negative one, or one longer than any clock can hold.
fn invalid_duration() -> impl Strategy<Value = String> {
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

/// Texts that are no unsigned number.
fn invalid_number() -> impl Strategy<Value = String> {
    let fixed = [
        "",
        " ",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "x",
        // One more than `u64::MAX`, and an Arabic-Indic digit.
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

fn check_refused(line: &CommandLine, flag: &str) -> Result<(), TestCaseError> {
    let ParseOutcome::Refused(refusal) = parse_line(&line.words) else {
        return Err(TestCaseError::fail(format!("{line:?} was taken")));
    };
    prop_assert!(refusal.message.contains(&format!("'{flag}")), "{}", refusal.message);
    check_form(line, &refusal)
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn an_invalid_duration_is_refused_with_the_options_name(
        (line, flag) in (select(matching_arguments(Argument::is_duration)), invalid_duration()).prop_flat_map(|(one, value)| line_with_option(one, value.into()))
    ) {
        check_refused(&line, &flag)?;
    }

    #[test]
    fn an_invalid_number_is_refused_with_the_options_name(
        (line, flag) in (select(matching_arguments(Argument::is_number)), invalid_number()).prop_flat_map(|(one, value)| line_with_option(one, value.into()))
    ) {
        check_refused(&line, &flag)?;
    }

    #[test]
    fn no_accepted_duration_exceeds_the_maximum(text in invalid_duration(), number in any::<u64>(), unit in "(ns|us|ms|s|m|h|d|w)") {
        for text in [text, format!("{number}{unit}")] {
            if let Ok(taken) = parse_duration(&text) {
                prop_assert!(taken <= MAX_DURATION, "{}", text);
            }
        }
    }
}

// Arguments are classified by the values they accept. This test keeps known ones from slipping through.
#[test]
fn durations_and_numbers_are_found_by_the_values_they_accept() {
    let flags = |wanted| -> Vec<String> {
        let found = matching_arguments(wanted);
        assert!(found.iter().all(|(_, argument)| !argument.arg.is_positional()));
        found.iter().map(|(verb, argument)| format!("{} {}", verb.path.join(" "), argument.flag())).collect()
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
