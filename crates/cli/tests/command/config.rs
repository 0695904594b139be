//! Settings: which counts, where it came from, and what is wrong with a file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use crate::schema::valid;
use crate::stage::{Stage, code, printed, said};

/// Without the store that the stage names in the environment, and with a home in the stage's folder.
fn run(stage: &Stage, args: &[&str]) -> std::process::Output {
    let mut command = stage.command(args);
    command
        .env_remove("LEASEHOLD_STORE")
        .env_remove("XDG_CONFIG_HOME");
    command.output().unwrap()
}

#[test]
fn flags_environment_folder_user_defaults() {
    let stage = Stage::sqlite();
    let origin = |output: &std::process::Output| {
        let json = valid("config", &printed(output));
        let store = &json["settings"]["store"];
        (
            store["value"].as_str().unwrap().to_owned(),
            store["origin"].as_str().unwrap().to_owned(),
        )
    };
    let show = ["config", "show", "-o", "json"];
    let (value, from) = origin(&run(&stage, &show));
    assert!(value.ends_with("/.local/state/leasehold/leasehold.db"), "{value}");
    assert_eq!(from, "default");

    std::fs::create_dir_all(stage.path(".config/leasehold")).unwrap();
    stage.write(
        ".config/leasehold/config.toml",
        "# mine\nstore = \"sqlite:user.db\"\ntimeout = \"7s\"\n",
    );
    let (value, from) = origin(&run(&stage, &show));
    assert_eq!(value, "sqlite:user.db");
    assert!(from.ends_with(".config/leasehold/config.toml:2"), "{from}");

    stage.write(
        "leasehold.toml",
        "store = \"sqlite:here.db\"\n[class.report]\nttl = \"45s\"\n",
    );
    assert_eq!(
        origin(&run(&stage, &show)),
        ("sqlite:here.db".into(), "leasehold.toml:1".into())
    );
    let text = printed(&run(&stage, &["config", "show", "--origin"]));
    assert!(text.contains("7s") && text.contains("config.toml:3"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("policies") && line.ends_with("leasehold.toml")),
        "{text}"
    );
    assert!(!printed(&run(&stage, &["config", "show"])).contains("ORIGIN"));

    let mut command = stage.command(&show);
    let output = command.env("LEASEHOLD_STORE", "sqlite:env.db").output().unwrap();
    assert_eq!(
        origin(&output),
        ("sqlite:env.db".into(), "LEASEHOLD_STORE".into())
    );
    let mut flag = vec!["--store", "sqlite:flag.db"];
    flag.extend(show);
    let mut command = stage.command(&flag);
    let output = command.env("LEASEHOLD_STORE", "sqlite:env.db").output().unwrap();
    assert_eq!(origin(&output), ("sqlite:flag.db".into(), "command line".into()));

    // What is shown is what is used, and the same file serves as the policies.
    assert_eq!(code(&run(&stage, &["store", "init"])), 0);
    assert!(stage.path("here.db").exists());
    assert!(printed(&run(&stage, &["policy", "show", "report"])).contains("leasehold.toml:3"));
    assert_eq!(code(&run(&stage, &["policy", "check", "leasehold.toml"])), 0);
}

#[test]
fn secrets_in_urls_are_not_shown() {
    let stage = Stage::sqlite();
    stage.write(
        "leasehold.toml",
        "store = \"redis://app:hunter2@127.0.0.1:1/0\"\n",
    );
    for args in [
        &["config", "show"][..],
        &["config", "show", "-o", "json", "--origin"],
        &["list"],
        &["doctor"],
    ] {
        let output = run(&stage, args);
        let all = format!("{}{}", printed(&output), said(&output));
        assert!(!all.contains("hunter2") && all.contains("***"), "{args:?}: {all}");
    }
}

#[test]
fn mistakes_are_named_with_line_and_suggestion() {
    let stage = Stage::sqlite();
    for (text, expected) in [
        (
            "stroe = \"x\"\n",
            "leasehold.toml:1: stroe: this key is unknown: did you mean `store`?",
        ),
        (
            "\ntimeout = \"5\"\n",
            "leasehold.toml:2: timeout: has no unit; write `5s`",
        ),
        ("timeout = 5\n", "must be a text in quotes"),
        ("store = \"mysql://h\"\n", "leasehold.toml:1"),
        ("store = \n", "is not TOML"),
    ] {
        stage.write("leasehold.toml", text);
        let output = run(&stage, &["list"]);
        let said = said(&output);
        assert_eq!(
            (code(&output), printed(&output).as_str()),
            (2, ""),
            "{text}: {said}"
        );
        assert!(
            said.contains(expected) && said.lines().count() <= 3,
            "{text}: {said}"
        );
        // `run` has a code of its own for that.
        assert_eq!(code(&run(&stage, &["run", "demo", "true"])), 125);
    }
}
