//! Error output of every verb: at most three lines, all with leasehold's prefix, the documented exit code,
//! and the wrong argument.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::fixture::{Fixture, exit_code, stderr_of};

/// Runs a command, asserts the form of its error output, and returns it.
fn refused_output(fixture: &Fixture, args: &[&str], expected: i32) -> String {
    let output = fixture.run(args);
    let said = stderr_of(&output);
    assert_eq!(exit_code(&output), expected, "{args:?}: {said}");
    let lines: Vec<_> = said.lines().collect();
    assert!(
        (1..=3).contains(&lines.len()) && lines.iter().all(|line| line.starts_with("leasehold: ")),
        "{args:?}: {said}"
    );
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    said
}

#[test]
fn bad_arguments_are_reported_in_three_lines() {
    let fixture = Fixture::sqlite();
    fixture.write("garbage", "garbage\n");
    fixture.write("bad.toml", "x = 1\n");
    let cases: &[(&str, i32, &str)] = &[
        ("run a{b -- true", 125, "name"),
        ("run n", 125, "no command"),
        ("run n -- /nonexistent/x", 127, "no such command"),
        ("run n -- /etc/passwd", 126, "/etc/passwd"),
        ("run --ttl 5 n -- true", 125, "has no unit"),
        ("run --ttl 1ms n -- true", 125, "from 100ms to 24h"),
        ("run -w never n -- true", 125, "is not a duration"),
        ("run -s n -- true", 125, "shared"),
        ("run --class nope n -- true", 125, "known are"),
        ("run -E 999 n -- true", 125, "0..=255"),
        ("--policies bad.toml run n -- true", 125, "bad.toml:1"),
        ("elect n", 125, "COMMAND"),
        ("renew", 2, "LEASEHOLD_TOKEN_FILE"),
        ("renew --token-file nope", 2, "nope"),
        ("release --token-file garbage", 2, "garbage"),
        ("show", 2, "<NAME>"),
        ("list -o xml", 2, "possible values"),
        ("watch --count x", 2, "whole number"),
        ("watch --events", 2, "daemon"),
        ("break n", 2, "--reason"),
        ("policy show nope", 2, "known are"),
        ("policy check nope.toml", 2, "nope.toml"),
        ("policy check bad.toml", 1, "bad.toml"),
        ("policy set workflow ttl 5s --for 1m --reason x", 2, "daemon"),
        ("--store foo: list", 2, "known are"),
        ("--store redis://u:hunter2@127.0.0.1:1 list", 2, "password_file"),
        ("job get", 2, "<ID>"),
        ("job get nope", 1, "nope"),
        ("job cancel nope", 1, "nope"),
        ("job retry nope", 1, "nope"),
        ("job list --state nope", 2, "--state"),
        ("workflow apply nope.toml", 2, "nope.toml"),
        ("workflow start nope", 1, "nope"),
        ("workflow watch nope", 1, "nope"),
        ("workflow rerun nope --from x", 1, "nope"),
        ("approval approve nope@0 --by a --reason b", 1, "nope"),
        ("approval approve nope --by a --reason b", 2, "approval list -o name"),
        ("approval reject nope --by a", 2, "--reason"),
        ("advise", 2, "--from"),
        ("advise nope --p99 5s", 2, "known are"),
        ("advise scheduler --from garbage", 2, "line 1"),
        ("drill run nope", 2, "drill list"),
        ("drill report garbage", 2, "garbage"),
        ("drill faults --count x", 2, "whole number"),
        ("serve --listen 0.0.0.0:0", 2, "--tokens"),
        ("serve --listen x", 2, "127.0.0.1:7420"),
        ("serve --tokens nope --listen 127.0.0.1:0", 2, "nope"),
        ("token new a --grant x:y --file t", 2, "define, command, admin"),
        ("audit verify nope", 2, "nope"),
        ("completions nope", 2, "possible values"),
        ("man nope", 2, "known are"),
        ("config show --foo", 2, "--foo"),
        ("frobnicate", 2, "frobnicate"),
    ];
    for (line, expected, word) in cases {
        let args: Vec<&str> = line.split(' ').collect();
        let message = refused_output(&fixture, &args, *expected);
        assert!(message.contains(word), "{line}: {message}");
        assert!(!message.contains("hunter2"), "{line}: {message}");
    }
}

/// Each verb that needs the store reports what failed, which store, and why.
#[test]
fn an_unreachable_store_is_named_with_the_reason() {
    let verbs: &[(&str, i32)] = &[
        ("run n -- true", 125),
        ("acquire n --token-file t", 2),
        ("show n", 2),
        ("list", 2),
        ("watch n --count 1", 2),
        ("break n --reason x", 2),
        ("top", 2),
        ("doctor", 2),
        ("store info", 2),
        ("store init", 2),
    ];
    let daemons: &[(&str, i32)] = &[
        ("watch --events", 2),
        ("policy history", 2),
        ("policy set workflow acquire.on_error fail-closed --for 1m --reason x", 2),
        ("advise scheduler --from http://127.0.0.1:1", 2),
    ];
    let both = ["redis://127.0.0.1:1", "http://127.0.0.1:1"].map(|store| (store, verbs));
    for (store, verbs) in both.into_iter().chain([("http://127.0.0.1:1", daemons)]) {
        let fixture = Fixture::with_store(store);
        for (line, expected) in verbs {
            let args: Vec<&str> = line.split(' ').collect();
            let message = refused_output(&fixture, &args, *expected);
            assert!(
                message.contains("127.0.0.1:1")
                    && message.contains("Connection refused")
                    && message.contains("cannot "),
                "{line}: {message}"
            );
        }
    }
}
