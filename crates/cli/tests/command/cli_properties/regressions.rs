//! Regression tests for defects that the properties have found.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use leasehold_cli::testing::{ParseOutcome, parse_line};

use super::command_line::CommandLine;
use super::refusals::check_form;

/// The message and exit code of a refused line; panics if it is not refused in the right form.
fn refusal_of(words: &[&str]) -> (String, u8) {
    refusal_of_bytes(words.iter().map(OsString::from).collect())
}

fn refusal_of_bytes(words: Vec<OsString>) -> (String, u8) {
    let mut all: Vec<OsString> = vec!["leasehold".into()];
    all.extend(words);
    let line = CommandLine { words: all, verb: None };
    match parse_line(&line.words) {
        ParseOutcome::Refused(refusal) => {
            check_form(&line, &refusal).unwrap();
            (refusal.message, refusal.code)
        }
        _ => panic!("{line:?} was not refused"),
    }
}

#[test]
fn a_word_cannot_move_the_cursor_or_make_lines_of_its_own() {
    let (message, _) = refusal_of(&["show", "x", "\u{1b}[2Jhi"]);
    assert!(message.contains("'\\u001b[2Jhi'"), "{message}");
    // The argument must not be able to imitate clap's message.
    let (message, _) = refusal_of(&["show", "x", "a\n\nerror: all is well\n\nUsage: rm -rf /"]);
    assert!(message.starts_with("leasehold: unexpected argument 'a\\n\\nerror: all is well"), "{message}");
    assert!(message.contains("usage: leasehold show"), "{message}");
}

#[test]
fn a_word_that_fills_the_screen_is_cut() {
    let (message, _) = refusal_of(&["show", "x", &"y".repeat(100_000)]);
    assert!(message.len() < 500 && message.contains("yyy…'"), "{message}");
    let (message, _) = refusal_of(&["run", "--ttl", &"1".repeat(100_000), "n", "true"]);
    assert!(message.len() < 500 && message.contains("--ttl"), "{message}");
}

#[test]
fn a_word_that_is_not_utf8_is_named() {
    let (message, _) = refusal_of_bytes(vec!["show".into(), OsString::from_vec(vec![b'a', 0xff])]);
    assert!(message.starts_with("leasehold: 'a\u{fffd}' is not UTF-8\n"), "{message}");
}

#[test]
fn a_password_in_a_surplus_word_is_not_repeated() {
    for words in [
        &["show", "x", "redis://u:hunter2@h"][..],
        &["redis://u:hunter2@h", "list"],
        &["list", "-o", "redis://u:hunter2@h"],
        &["list", "--watch=redis://u:hunter2@h"],
        &["break", "x", "--reason", "y", "--fence", "redis://u:hunter2@h"],
        &["token", "new", "a", "--file", "f", "--grant", "http://h?token=hunter2"],
        &["serve", "--listen", "redis:u:hunter2@h"],
    ] {
        let (message, _) = refusal_of(words);
        assert!(!message.contains("hunter2") && message.contains("***"), "{message}");
    }
}

#[test]
fn an_unknown_option_before_the_verb_does_not_hide_the_verb() {
    for words in [
        &["--frob", "run", "n", "true"][..],
        &["--frob", "x", "run", "n", "true"],
        &["--store", "list", "--frob", "elect", "n", "true"],
        &["--holder=list", "--frob=1", "run", "n", "true"],
    ] {
        assert_eq!(refusal_of(words).1, 125, "{words:?}");
    }
    for words in [
        &["--frob", "list"][..],
        &["--store", "run", "--frob", "list"],
        &["lst", "run"],
        &["show", "run", "x"],
        &["--", "run", "n", "true"],
    ] {
        assert_eq!(refusal_of(words).1, 2, "{words:?}");
    }
}

#[test]
fn a_duration_that_no_clock_can_hold_is_refused() {
    for words in [
        &["advise", "--p99=9223372036854775807s", "--jitter=9223372036854775807s"][..],
        &["token", "new", "a", "--grant", "read:*", "--file", "f", "--expires=9223372036854775807s"],
        &["drill", "soak", "--for=9223372036854775807s"],
        &["drill", "plane", "--poll=9223372036854775807s"],
    ] {
        let (message, _) = refusal_of(words);
        assert!(message.contains("876000h"), "{message}");
    }
}

#[test]
fn more_than_a_machine_can_do_is_refused() {
    for words in [
        &["plane", "replica", "--slots", "18446744073709551615"][..],
        &["plane", "replica", "--slots", "0"],
        &["drill", "plane", "--runs", "18446744073709551615"],
        &["drill", "plane", "--replicas", "0"],
        &["watch", "--count", "0"],
    ] {
        let (message, code) = refusal_of(words);
        assert!(code == 2 && message.contains(words[words.len() - 2]), "{message}");
    }
}

// A command may itself contain `--`, as in `ssh host -- ls`.
#[test]
fn dashes_inside_a_command_belong_to_the_command() {
    for (words, command) in [
        (&["run", "n", "--", "a", "--", "b"][..], &["a", "--", "b"][..]),
        (&["run", "n", "a", "--", "b"], &["a", "--", "b"]),
        (&["run", "n", "--", "--", "b"], &["--", "b"]),
        (&["run", "n", "a", "--store", "x"], &["a", "--store", "x"]),
    ] {
        let words: Vec<OsString> = ["leasehold"].iter().chain(words).map(OsString::from).collect();
        let ParseOutcome::Parsed(mut cli) = parse_line(&words) else {
            panic!("{words:?}");
        };
        let given: Option<Vec<OsString>> = Some(command.iter().map(OsString::from).collect());
        assert_eq!(cli.take_command(), given, "{words:?}");
        assert_eq!(cli.store(), None, "{words:?}");
    }
}
