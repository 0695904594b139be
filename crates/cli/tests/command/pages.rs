//! Output generated from the clap definitions: reference, manual pages, completions; and JSON schemas.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::path::Path;

use crate::fixture::{Fixture, exit_code, stderr_of, stdout_of};
use crate::schema::parse_valid;

/// Regenerate with `cargo run -- man --reference docs/reference`.
#[test]
fn the_reference_is_up_to_date() {
    let fixture = Fixture::sqlite();
    let made = fixture.run(&["man", "--reference", "pages"]);
    assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let mut pages = 0;
    for entry in std::fs::read_dir(fixture.path("pages")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let new = fixture.read(&format!("pages/{name}"));
        let old = std::fs::read_to_string(committed.join(&name)).unwrap_or_default();
        let differs = new.lines().zip(old.lines()).find(|(a, b)| a != b);
        assert!(
            new == old,
            "docs/reference/{name} is old: run `cargo run -- man --reference docs/reference`; first difference: {differs:?}"
        );
        pages += 1;
    }
    let kept = std::fs::read_dir(committed).unwrap().count();
    assert_eq!(pages, kept, "a page in docs/reference is made by nothing");
}

#[test]
fn every_verb_has_examples_and_a_manual_page() {
    let fixture = Fixture::sqlite();
    let reference = stdout_of(&fixture.run(&["man", "--markdown"]));
    let verbs: Vec<_> = reference.lines().filter_map(|line| line.strip_prefix("### `leasehold ")).collect();
    assert!(verbs.len() > 20, "{verbs:?}");
    for verb in verbs {
        let words: Vec<_> = verb.trim_end_matches('`').split(' ').collect();
        let mut args = words.clone();
        args.push("--help");
        let help = fixture.run(&args);
        assert_eq!(exit_code(&help), 0, "{words:?}");
        // Examples of a nested verb may be in the help of its parent.
        let outer = stdout_of(&fixture.run(&[words[0], "--help"]));
        let inner = stdout_of(&help).contains("\nCommands:");
        let shown = inner || format!("{}{outer}", stdout_of(&help)).contains("Examples:");
        assert!(shown, "no examples in leasehold {}", words.join(" "));
    }
    assert_eq!(exit_code(&fixture.run(&["man", "--to", "pages"])), 0);
    for page in ["leasehold.1", "leasehold-run.1", "leasehold-policy-check.1"] {
        let text = fixture.read(&format!("pages/{page}"));
        assert!(text.contains(".SH NAME"), "{page}");
    }
    assert!(stdout_of(&fixture.run(&["man", "run"])).contains("stop\\-grace"));
    assert_eq!(exit_code(&fixture.run(&["man", "frobnicate"])), 2);
}

/// The completions that a shell requests on TAB.
pub(crate) fn complete(fixture: &Fixture, words: &[&str]) -> Vec<String> {
    let mut args = vec!["--", "leasehold"];
    args.extend(words);
    let mut command = fixture.command(&args);
    command
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "false");
    let output = command.output().unwrap();
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    stdout_of(&output).lines().map(str::to_owned).collect()
}

#[test]
fn current_names_and_classes_are_completed() {
    let fixture = Fixture::sqlite();
    assert_eq!(complete(&fixture, &["show", "job:"]), Vec::<String>::new());
    assert!(!fixture.path("locks.db").exists(), "a TAB makes nothing");
    for name in ["job:1", "job:2", "other"] {
        assert_eq!(exit_code(&fixture.run(&["acquire", name, "--token-file", name])), 0);
    }
    assert_eq!(complete(&fixture, &["show", "job:"]), ["job:1", "job:2"]);
    assert_eq!(complete(&fixture, &["break", "oth"]), ["other"]);
    // Another store, given anywhere on the command line.
    let elsewhere = format!("sqlite:{}", fixture.path("elsewhere.db").display());
    assert_eq!(complete(&fixture, &["--store", &elsewhere, "show", "job:"]), Vec::<String>::new());
    assert_eq!(complete(&fixture, &["show", "--store", &elsewhere, "job:"]), Vec::<String>::new());
    fixture.write("classes.toml", "[class.workshop]\nttl = \"45s\"\n");
    let classes = complete(&fixture, &["--policies", "classes.toml", "run", "--class", "work"]);
    assert_eq!(classes, ["workflow", "workflow-critical", "workshop"]);
    assert!(complete(&fixture, &["dr"]).contains(&"drill".to_owned()));
    // An unavailable store gives no completions and no error.
    assert_eq!(complete(&fixture, &["--store", "redis://127.0.0.1:1", "show", "x"]), Vec::<String>::new());
}

#[test]
fn every_shell_gets_a_completion_script() {
    let fixture = Fixture::sqlite();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = fixture.run(&["completions", shell]);
        assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
        assert!(
            stdout_of(&output).contains("COMPLETE") && stdout_of(&output).contains("leasehold"),
            "{shell}"
        );
    }
    assert_eq!(exit_code(&fixture.run(&["completions", "tcsh"])), 2);
}

#[test]
fn json_output_matches_its_schema() {
    let fixture = Fixture::sqlite();
    parse_valid("lease", &stdout_of(&fixture.run(&["show", "demo", "-o", "json"])));
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    parse_valid("lease", &stdout_of(&fixture.run(&["show", "demo", "-o", "json"])));
    parse_valid("list", &stdout_of(&fixture.run(&["list", "-o", "json"])));
    for line in stdout_of(&fixture.run(&["list", "-o", "jsonl"])).lines() {
        parse_valid("lease", line);
    }
    let info = parse_valid("store-info", &stdout_of(&fixture.run(&["store", "info", "-o", "json"])));
    assert_eq!(info["times"]["claim_ttl_ms"], 500);
    assert_eq!(info["times"]["min_ttl_ms"], 100);
    let policies = parse_valid("policy", &stdout_of(&fixture.run(&["policy", "show", "-o", "json"])));
    assert_eq!(policies["classes"].as_array().unwrap().len(), 7);
}

#[test]
fn a_schema_can_fail() {
    let bad = r#"{"schema_version":1,"leases":[{"name":"a"}],"truncated":false}"#;
    assert!(std::panic::catch_unwind(|| parse_valid("list", bad)).is_err());
}

#[test]
fn top_without_a_terminal_prints_one_list() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let output = fixture.run(&["top"]);
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    assert!(stdout_of(&output).contains("demo") && !stdout_of(&output).contains('\x1b'));
    assert!(stderr_of(&output).contains("list --watch"));
}

#[test]
fn usage_errors_have_the_verbs_code() {
    let fixture = Fixture::sqlite();
    for (args, expected) in [
        (&["run", "--frob"][..], 125),
        (&["--store", "list", "run", "--frob"], 125),
        (&["list", "--frob"], 2),
        (&["--store", "run", "list", "--frob"], 2),
        (&["show"], 2),
        (&["break", "run"], 2),
        (&[], 2),
    ] {
        assert_eq!(exit_code(&fixture.run(args)), expected, "{args:?}");
    }
}
