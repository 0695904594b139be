//! `leasehold list`, `show` and `policy`: their output and exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{Fixture, eventually, exit_code, stderr_of, stdout_of};

const HOLD_UNTIL_STOP_SCRIPT: &str = "echo > $LEASEHOLD_NAME; while [ ! -e stop ]; do sleep 0.05; done";

#[test]
fn lists_and_shows_what_is_held() {
    let fixture = Fixture::sqlite();
    let empty = fixture.run(&["list"]);
    assert_eq!((exit_code(&empty), stdout_of(&empty).lines().count()), (0, 1), "{}", stdout_of(&empty));
    let mut held: Vec<_> = ["job-b", "job-a", "other"]
        .iter()
        .map(|name| {
            fixture.start(&[
                "--holder",
                "h",
                "run",
                "--class",
                "approval",
                "-c",
                HOLD_UNTIL_STOP_SCRIPT,
                name,
            ])
        })
        .collect();
    for name in ["job-a", "job-b", "other"] {
        eventually(name, || fixture.path(name).exists());
    }

    let table = stdout_of(&fixture.run(&["list"]));
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "HOLDER", "CLASS", "FENCE", "REMAINING", "AGE"]);
    assert_eq!(rows[1][..3], ["job-a", "h", "approval"], "{table}");
    assert!(!table.contains('\x1b'), "colour in a pipe");
    assert!(stdout_of(&fixture.run(&["list", "-o", "wide"])).contains("WAITERS"));

    assert_eq!(stdout_of(&fixture.run(&["list", "-o", "name", "job-"])), "job-a\njob-b\n");
    let cut = fixture.run(&["list", "-o", "name", "--limit", "1"]);
    assert_eq!(stdout_of(&cut), "job-a\n");
    assert!(stderr_of(&cut).contains("--limit"), "{}", stderr_of(&cut));

    let json: serde_json::Value =
        serde_json::from_str(&stdout_of(&fixture.run(&["list", "-o", "json"]))).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["leases"].as_array().unwrap().len(), 3);
    let lease = &json["leases"][0];
    assert!(lease["fence"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert!(lease["remaining_ms"].as_u64().unwrap() <= 10_000);
    let lines = stdout_of(&fixture.run(&["list", "-o", "jsonl"]));
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|line| line.contains("\"schema_version\":1")));

    let shown = fixture.run(&["show", "other", "-o", "json"]);
    assert_eq!(exit_code(&shown), 0);
    let shown: serde_json::Value = serde_json::from_str(&stdout_of(&shown)).unwrap();
    assert_eq!((&shown["name"], &shown["held"]), (&"other".into(), &true.into()));
    fixture.write("stop", "");
    held.iter_mut().for_each(|run| assert_eq!(run.wait_exit_code(), 0));
}

/// As the help recommends it: names have no white space, and `--` ends the options.
#[test]
fn names_reach_other_commands_through_xargs() {
    let fixture = Fixture::sqlite();
    let names = ["it's", "say\"hi\"", "-n", "--store", "back\\slash", "$HOME", "a;touch$IFS'ran'"];
    for (number, name) in names.iter().enumerate() {
        let file = format!("t{number}");
        let taken = fixture.run(&["acquire", "--token-file", &file, "--", name]);
        assert_eq!(exit_code(&taken), 0, "{name}: {}", stderr_of(&taken));
    }
    let spaces = fixture.run(&["acquire", "--token-file", "t", "two words"]);
    assert_eq!(exit_code(&spaces), 2, "{}", stderr_of(&spaces));
    let line = "set -o pipefail; \"$0\" list -o name | xargs -d '\\n' -n1 \"$0\" show -o json --";
    let usual = fixture.command(&[]);
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_leasehold")]).current_dir(fixture.path("."));
    shell.env_clear().envs(usual.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let shown = shell.env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap();
    assert_eq!(exit_code(&shown), 0, "{}", stderr_of(&shown));
    let mut found: Vec<String> = serde_json::Deserializer::from_str(&stdout_of(&shown))
        .into_iter::<serde_json::Value>()
        .map(|one| one.unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    found.sort_unstable();
    let mut expected = names.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(!fixture.path("ran").exists());
}

#[test]
fn show_distinguishes_free_from_error() {
    let fixture = Fixture::sqlite();
    let free = fixture.run(&["show", "demo"]);
    assert_eq!((exit_code(&free), stdout_of(&free).as_str()), (1, ""));
    assert!(stderr_of(&free).contains("demo is free"));
    let json = fixture.run(&["show", "demo", "-o", "json"]);
    assert_eq!(exit_code(&json), 1);
    let json: serde_json::Value = serde_json::from_str(&stdout_of(&json)).unwrap();
    assert_eq!((&json["held"], &json["schema_version"]), (&false.into(), &1.into()));
    for args in [
        &["show", "a b"][..],
        &["--store", "redis://127.0.0.1:1", "show", "demo"],
        &["--store", "redis://127.0.0.1:1", "list"],
        &["list", "--limit", "0"],
        &["frobnicate"],
    ] {
        let output = fixture.run(args);
        assert_eq!(exit_code(&output), 2, "{args:?}: {}", stderr_of(&output));
        assert_eq!(stdout_of(&output), "", "{args:?}");
    }
}

#[test]
fn policy_check_has_three_exit_codes() {
    let fixture = Fixture::sqlite();
    fixture.write("good.toml", "[class.report]\nttl = \"45s\"\n");
    fixture.write("bad.toml", "[class.report]\nttl = 45\nwaitt = \"1s\"\n");
    assert_eq!(exit_code(&fixture.run(&["policy", "check", "good.toml"])), 0);
    let bad = fixture.run(&["policy", "check", "bad.toml"]);
    assert_eq!(exit_code(&bad), 1);
    for problem in ["bad.toml:2", "bad.toml:3"] {
        assert!(stdout_of(&bad).contains(problem), "{}", stdout_of(&bad));
    }
    assert_eq!(exit_code(&fixture.run(&["policy", "check", "missing.toml"])), 2);
}

/// `policy check` also checks the settings in the same file, and reports each problem once.
#[test]
fn policy_check_checks_settings() {
    let fixture = Fixture::sqlite();
    let good = "store = \"memory:\"\ntimeout = \"2s\"\nholder = \"web-1\"\n[class.report]\nttl = \"45s\"\n";
    fixture.write("good.toml", good);
    assert_eq!(exit_code(&fixture.run(&["policy", "check", "good.toml"])), 0);
    fixture.write(
        "bad.toml",
        "store = \"frob://x\"\ntimeout = \"5\"\nholder = \"a|b\"\naudit_file = 7\nstor = \"x\"\n[class.report]\nttl = 45\n",
    );
    let bad = fixture.run(&["policy", "check", "bad.toml"]);
    assert_eq!(exit_code(&bad), 1, "{}", stdout_of(&bad));
    let problems = stdout_of(&bad);
    for line in [1, 2, 3, 4, 5, 7] {
        let at = format!("bad.toml:{line}:");
        assert_eq!(problems.matches(&at).count(), 1, "{at} {problems}");
    }
    assert_eq!(problems.lines().count(), 6, "{problems}");
}

#[test]
fn policy_show_has_the_origin_of_every_value() {
    let fixture = Fixture::sqlite();
    fixture.write("mine.toml", "[class.report]\nttl = \"45s\"\n");
    let output = fixture.run(&["--policies", "mine.toml", "policy", "show", "report"]);
    assert!(stdout_of(&output).contains("mine.toml:2"), "{}", stdout_of(&output));
    let all = stdout_of(&fixture.run(&["policy", "show"]));
    for class in ["class scheduler", "class workflow", "class approval"] {
        assert!(all.contains(class), "{class}");
    }
    let unknown = fixture.run(&["policy", "show", "schedular"]);
    assert_eq!(exit_code(&unknown), 2);
    assert!(stderr_of(&unknown).contains("scheduler"));
}
