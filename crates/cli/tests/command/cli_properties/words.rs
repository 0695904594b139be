//! Ordinary and hostile words for command lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;
use proptest::sample::select;

/// A password for URLs. No text of ours contains it.
pub(super) const SECRET: &str = "hunter2";

/// At least one valid value for each kind of argument.
pub(super) fn ordinary() -> Vec<OsString> {
    [
        "x",
        "job:42",
        "1",
        "16",
        "100",
        "10s",
        "1m30s",
        "5m",
        "2h",
        "ttl=12s",
        "127.0.0.1:0",
        "[::1]:7420",
        "hold:job",
        "read:*",
        "running",
        "{}",
        "/tmp/f",
        "./f",
        "sqlite:/tmp/x.db",
        "memory:",
        "redis://h",
        "http://127.0.0.1:7420",
        "latency latency=200 jitter=50",
        "ü",
    ]
    .map(OsString::from)
    .into()
}

/// Words that may break a parser, a message or a terminal.
pub(super) fn hostile_word() -> impl Strategy<Value = OsString> {
    let fixed = select(vec![
        "",
        " ",
        "--help",
        "-h",
        "--version",
        "-V",
        "-",
        "--",
        "---",
        "--=",
        "-=",
        "=",
        "--=x",
        "-x",
        "--frob",
        "--frob=1",
        "-1",
        "-9223372036854775808",
        "0",
        "+1",
        "00",
        "0x10",
        "1e9",
        "NaN",
        "inf",
        "255",
        "256",
        "65536",
        "4294967296",
        "9007199254740992",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
        "10",
        "-3s",
        "0s",
        "1ns",
        "9223372036854775807s",
        "9223372036854775808s",
        "106751991167300d",
        "5000000000000h",
        "876000h 1s",
        "10 parsecs",
        "ttl=",
        "ttl=-1s",
        "ttl=9223372036854775807s",
        "\u{1b}[2J\u{1b}]0;x\u{7}",
        "a\nb",
        "a\n\nerror: b",
        "\n\nUsage: x",
        "\r",
        "a\tb",
        "\u{9b}31m",
        "\u{202e}x",
        "\u{feff}",
        "a' tip: b",
        "'",
        "\"",
        "\\",
        "$(reboot)",
        "`x`",
        "%s%n",
        "*",
        "{",
        "}",
        "a,b",
        ",",
        "../../../../etc/passwd",
        "/dev/stdin",
        "999.999.999.999:1",
        "[::]:99999",
        "localhost:80",
        "hold:",
        ":",
        "admin:*:*",
        "redis://",
        "http://[",
        "sqlite:?",
        "memory:x",
        "null",
        "[[[[",
        "{\"a\":",
        "help",
        "run",
    ])
    .prop_map(OsString::from);
    prop_oneof![
        10 => fixed,
        2 => any::<String>().prop_map(|text| text.replace('\0', "")).prop_map(OsString::from),
        // File names need not be UTF-8.
        2 => prop::collection::vec(1_u8.., 0..12).prop_map(OsString::from_vec),
        1 => (select(vec!["1", "x", "ü", "=", "\u{1b}"]), 1..20_000_usize).prop_map(|(unit, times)| unit.repeat(times).into()),
        2 => secret_url(),
    ]
}

/// URLs with a password, valid and malformed.
pub(super) fn secret_url() -> impl Strategy<Value = OsString> {
    // `§` stands for the password.
    let forms = vec![
        "redis://u:§@h",
        "rediss://:§@h:6380/2",
        "http://u:§@127.0.0.1:1",
        "https://u:§@h/?x=1",
        "valkey://u:a@§@h",
        "redis://u:§\u{1b}[2J@h",
        "redis://h?password=§",
        "redis:u:§@h",
        "u:§@h",
        "mysql://u:§@h",
        "redis://u:a/§@h",
        "HTTP://u:§@h",
        "--store=redis://u:§@h",
        "-sredis://u:§@h",
    ];
    (select(forms), 0..3_usize)
        .prop_map(|(form, long)| form.replace('§', &format!("{SECRET}{}", "y".repeat(long * 40))).into())
}

/// A misspelled option.
pub(super) fn misspelled(flag: &str) -> impl Strategy<Value = String> + use<> {
    let letters: Vec<char> = flag.chars().collect();
    (0..letters.len(), 0..3_u8).prop_map(move |(at, how)| {
        let mut letters = letters.clone();
        match how {
            0 => drop(letters.remove(at)),
            1 => letters.insert(at, letters[at]),
            _ => letters[at] = letters[at].to_ascii_uppercase(),
        }
        letters.into_iter().collect()
    })
}
