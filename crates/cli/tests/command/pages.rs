//! What is generated from the command line's own description: the reference, the manual, completions; and JSON forms.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use std::path::Path;

use crate::schema::valid;
use crate::stage::{Stage, code, printed, said};

/// Regenerate with `cargo run -- man --reference docs/reference`.
#[test]
fn the_reference_is_what_the_code_says() {
    let stage = Stage::sqlite();
    let made = stage.run(&["man", "--reference", "pages"]);
    assert_eq!(code(&made), 0, "{}", said(&made));
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let mut pages = 0;
    for entry in std::fs::read_dir(stage.path("pages")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let new = stage.read(&format!("pages/{name}"));
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
    let stage = Stage::sqlite();
    let reference = printed(&stage.run(&["man", "--markdown"]));
    let verbs: Vec<_> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("### `leasehold "))
        .collect();
    assert!(verbs.len() > 20, "{verbs:?}");
    for verb in verbs {
        let words: Vec<_> = verb.trim_end_matches('`').split(' ').collect();
        let mut args = words.clone();
        args.push("--help");
        let help = stage.run(&args);
        assert_eq!(code(&help), 0, "{words:?}");
        // Those of a verb within a verb may stand with the outer one.
        let outer = printed(&stage.run(&[words[0], "--help"]));
        let inner = printed(&help).contains("\nCommands:");
        let shown = inner || format!("{}{outer}", printed(&help)).contains("Examples:");
        assert!(shown, "no examples in leasehold {}", words.join(" "));
    }
    assert_eq!(code(&stage.run(&["man", "--to", "pages"])), 0);
    for page in ["leasehold.1", "leasehold-run.1", "leasehold-policy-check.1"] {
        let text = stage.read(&format!("pages/{page}"));
        assert!(text.contains(".SH NAME"), "{page}");
    }
    assert!(printed(&stage.run(&["man", "run"])).contains("stop\\-grace"));
    assert_eq!(code(&stage.run(&["man", "frobnicate"])), 2);
}

/// What a shell does when someone presses TAB.
fn complete(stage: &Stage, words: &[&str]) -> Vec<String> {
    let mut args = vec!["--", "leasehold"];
    args.extend(words);
    let mut command = stage.command(&args);
    command
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "false");
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    printed(&output).lines().map(str::to_owned).collect()
}

#[test]
fn names_and_classes_are_completed_as_they_are_now() {
    let stage = Stage::sqlite();
    assert_eq!(complete(&stage, &["show", "job:"]), Vec::<String>::new());
    assert!(!stage.path("locks.db").exists(), "a TAB makes nothing");
    for name in ["job:1", "job:2", "other"] {
        assert_eq!(code(&stage.run(&["acquire", name, "--token-file", name])), 0);
    }
    assert_eq!(complete(&stage, &["show", "job:"]), ["job:1", "job:2"]);
    assert_eq!(complete(&stage, &["break", "oth"]), ["other"]);
    // Another store, named anywhere on the line.
    let elsewhere = format!("sqlite:{}", stage.path("elsewhere.db").display());
    assert_eq!(
        complete(&stage, &["--store", &elsewhere, "show", "job:"]),
        Vec::<String>::new()
    );
    assert_eq!(
        complete(&stage, &["show", "--store", &elsewhere, "job:"]),
        Vec::<String>::new()
    );
    stage.write("leasehold.toml", "[class.workshop]\nttl = \"45s\"\n");
    let classes = complete(&stage, &["run", "--class", "work"]);
    assert_eq!(classes, ["workflow", "workflow-critical", "workshop"]);
    assert!(complete(&stage, &["dr"]).contains(&"drill".to_owned()));
    // A store that is away costs a moment, not an error.
    assert_eq!(
        complete(&stage, &["--store", "redis://127.0.0.1:1", "show", "x"]),
        Vec::<String>::new()
    );
}

#[test]
fn every_shell_gets_a_script_that_calls_us() {
    let stage = Stage::sqlite();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = stage.run(&["completions", shell]);
        assert_eq!(code(&output), 0, "{}", said(&output));
        assert!(
            printed(&output).contains("COMPLETE") && printed(&output).contains("leasehold"),
            "{shell}"
        );
    }
    assert_eq!(code(&stage.run(&["completions", "tcsh"])), 2);
}

#[test]
fn json_has_the_form_of_its_schema() {
    let stage = Stage::sqlite();
    valid("lease", &printed(&stage.run(&["show", "demo", "-o", "json"])));
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    valid("lease", &printed(&stage.run(&["show", "demo", "-o", "json"])));
    valid("list", &printed(&stage.run(&["list", "-o", "json"])));
    for line in printed(&stage.run(&["list", "-o", "jsonl"])).lines() {
        valid("lease", line);
    }
    valid(
        "store-info",
        &printed(&stage.run(&["store", "info", "-o", "json"])),
    );
    let policies = valid("policy", &printed(&stage.run(&["policy", "show", "-o", "json"])));
    assert_eq!(policies["classes"].as_array().unwrap().len(), 7);
}

#[test]
fn a_schema_can_fail() {
    let bad = r#"{"schema_version":1,"leases":[{"name":"a"}],"truncated":false}"#;
    assert!(std::panic::catch_unwind(|| valid("list", bad)).is_err());
}

#[test]
fn top_without_a_terminal_prints_one_list() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let output = stage.run(&["top"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(printed(&output).contains("demo") && !printed(&output).contains('\x1b'));
    assert!(said(&output).contains("list --watch"));
}

#[test]
fn usage_errors_have_the_verbs_code() {
    let stage = Stage::sqlite();
    for (args, expected) in [
        (&["run", "--frob"][..], 125),
        (&["--store", "list", "run", "--frob"], 125),
        (&["list", "--frob"], 2),
        (&["--store", "run", "list", "--frob"], 2),
        (&["show"], 2),
        (&["break", "run"], 2),
        (&[], 2),
    ] {
        assert_eq!(code(&stage.run(args)), expected, "{args:?}");
    }
}
