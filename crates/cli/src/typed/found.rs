//! What the properties have found, each by itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::line::Line;
use super::said::{End, in_form, typed};
use crate::args::Command;

/// What is said, if it is refused in the form of refusals.
fn refused(words: &[&str]) -> (String, u8) {
    bytes(words.iter().map(OsString::from).collect())
}

fn bytes(words: Vec<OsString>) -> (String, u8) {
    let mut all: Vec<OsString> = vec!["leasehold".into()];
    all.extend(words);
    let line = Line {
        words: all,
        verb: None,
    };
    match typed(&line.words) {
        End::Refused(refusal) => {
            in_form(&line, &refusal).unwrap();
            (refusal.said, refusal.code)
        }
        _ => panic!("{line:?} was not refused"),
    }
}

#[test]
fn a_word_cannot_move_the_cursor_or_make_lines_of_its_own() {
    let (said, _) = refused(&["show", "x", "\u{1b}[2Jhi"]);
    assert!(said.contains("'\\u{1b}[2Jhi'"), "{said}");
    // Not a message of its own making.
    let (said, _) = refused(&["show", "x", "a\n\nerror: all is well\n\nUsage: rm -rf /"]);
    assert!(
        said.starts_with("leasehold: unexpected argument 'a\\n\\nerror: all is well"),
        "{said}"
    );
    assert!(said.contains("usage: leasehold show"), "{said}");
}

#[test]
fn a_word_that_fills_the_screen_is_cut() {
    let (said, _) = refused(&["show", "x", &"y".repeat(100_000)]);
    assert!(said.len() < 500 && said.contains("yyy…'"), "{said}");
    let (said, _) = refused(&["run", "--ttl", &"1".repeat(100_000), "n", "true"]);
    assert!(said.len() < 500 && said.contains("--ttl"), "{said}");
}

#[test]
fn a_word_that_is_not_text_is_named() {
    let (said, _) = bytes(vec!["show".into(), OsString::from_vec(vec![b'a', 0xff])]);
    assert!(
        said.starts_with("leasehold: 'a\u{fffd}' is not UTF-8\n"),
        "{said}"
    );
}

#[test]
fn a_password_too_many_is_not_repeated() {
    for words in [
        &["show", "x", "redis://u:hunter2@h"][..],
        &["redis://u:hunter2@h", "list"],
        &["list", "-o", "redis://u:hunter2@h"],
        &["list", "--watch=redis://u:hunter2@h"],
        &["break", "x", "--reason", "y", "--fence", "redis://u:hunter2@h"],
        &[
            "token",
            "new",
            "a",
            "--file",
            "f",
            "--grant",
            "http://h?token=hunter2",
        ],
        &["serve", "--listen", "redis:u:hunter2@h"],
    ] {
        let (said, _) = refused(words);
        assert!(!said.contains("hunter2") && said.contains("***"), "{said}");
    }
}

#[test]
fn an_unknown_option_before_the_verb_does_not_hide_that_a_command_was_to_run() {
    for words in [
        &["--frob", "run", "n", "true"][..],
        &["--frob", "x", "run", "n", "true"],
        &["--store", "list", "--frob", "elect", "n", "true"],
        &["--holder=list", "--frob=1", "run", "n", "true"],
    ] {
        assert_eq!(refused(words).1, 125, "{words:?}");
    }
    for words in [
        &["--frob", "list"][..],
        &["--store", "run", "--frob", "list"],
        &["lst", "run"],
        &["show", "run", "x"],
        &["--", "run", "n", "true"],
    ] {
        assert_eq!(refused(words).1, 2, "{words:?}");
    }
}

#[test]
fn a_time_that_no_clock_can_hold_is_refused() {
    for words in [
        &[
            "advise",
            "--p99=9223372036854775807s",
            "--jitter=9223372036854775807s",
        ][..],
        &[
            "token",
            "new",
            "a",
            "--grant",
            "read:*",
            "--file",
            "f",
            "--expires=9223372036854775807s",
        ],
        &["drill", "soak", "--for=9223372036854775807s"],
        &["drill", "plane", "--poll=9223372036854775807s"],
    ] {
        let (said, _) = refused(words);
        assert!(said.contains("876000h"), "{said}");
    }
}

#[test]
fn more_than_a_machine_can_do_is_refused() {
    for words in [
        &["plane", "replica", "--slots", "18446744073709551615"][..],
        &["plane", "replica", "--slots", "0"],
        &["drill", "simulate", "--threads", "1000000"],
        &["drill", "simulate", "--threads", "0"],
        &["drill", "plane", "--runs", "18446744073709551615"],
        &["drill", "plane", "--replicas", "0"],
        &["watch", "--count", "0"],
    ] {
        let (said, code) = refused(words);
        assert!(code == 2 && said.contains(words[words.len() - 2]), "{said}");
    }
}

/// `ssh host -- ls` is a command like any other.
#[test]
fn dashes_within_a_command_are_the_commands() {
    for (words, command) in [
        (&["run", "n", "--", "a", "--", "b"][..], &["a", "--", "b"][..]),
        (&["run", "n", "a", "--", "b"], &["a", "--", "b"]),
        (&["run", "n", "--", "--", "b"], &["--", "b"]),
        (&["run", "n", "a", "--store", "x"], &["a", "--store", "x"]),
    ] {
        let words: Vec<OsString> = ["leasehold"].iter().chain(words).map(OsString::from).collect();
        let cli = crate::parse(&words).unwrap();
        let Command::Run(args) = cli.command else {
            panic!("{words:?}");
        };
        assert_eq!(args.argv, command, "{words:?}");
        assert_eq!(cli.place.store, None, "{words:?}");
    }
}
