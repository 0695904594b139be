//! Settings: precedence, origin of each value, and errors in files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use rustix::fs::inotify;

use crate::fixture::{Fixture, exit_code, stderr_of, stdout_of};
use crate::schema::parse_valid;

/// Runs without the fixture's store in the environment, and with a home in the fixture's folder.
fn run(fixture: &Fixture, args: &[&str]) -> std::process::Output {
    let mut command = fixture.command(args);
    command.env_remove("LEASEHOLD_STORE").env_remove("XDG_CONFIG_HOME");
    command.output().unwrap()
}

#[test]
fn precedence_is_flags_environment_folder_user_defaults() {
    let fixture = Fixture::sqlite();
    let origin = |output: &std::process::Output| {
        let json = parse_valid("config", &stdout_of(output));
        let store = &json["settings"]["store"];
        (store["value"].as_str().unwrap().to_owned(), store["origin"].as_str().unwrap().to_owned())
    };
    let show = ["config", "show", "-o", "json"];
    let (value, from) = origin(&run(&fixture, &show));
    assert!(value.ends_with("/.local/state/leasehold/leasehold.db"), "{value}");
    assert_eq!(from, "default");

    fixture.write_user_config("# mine\nstore = \"sqlite:user.db\"\ntimeout = \"7s\"\n");
    let (value, from) = origin(&run(&fixture, &show));
    assert_eq!(value, "sqlite:user.db");
    assert!(from.ends_with(".config/leasehold/config.toml:2"), "{from}");

    fixture.write("leasehold.toml", "store = \"sqlite:here.db\"\n[class.report]\nttl = \"45s\"\n");
    assert_eq!(exit_code(&run(&fixture, &["config", "trust"])), 0);
    assert_eq!(origin(&run(&fixture, &show)), ("sqlite:here.db".into(), "leasehold.toml:1".into()));
    let text = stdout_of(&run(&fixture, &["config", "show", "--origin"]));
    assert!(text.contains("7s") && text.contains("config.toml:3"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("policies") && line.ends_with("leasehold.toml")),
        "{text}"
    );
    assert!(!stdout_of(&run(&fixture, &["config", "show"])).contains("ORIGIN"));

    let mut command = fixture.command(&show);
    let output = command.env("LEASEHOLD_STORE", "sqlite:env.db").output().unwrap();
    assert_eq!(origin(&output), ("sqlite:env.db".into(), "LEASEHOLD_STORE".into()));
    let mut flag = vec!["--store", "sqlite:flag.db"];
    flag.extend(show);
    let mut command = fixture.command(&flag);
    let output = command.env("LEASEHOLD_STORE", "sqlite:env.db").output().unwrap();
    assert_eq!(origin(&output), ("sqlite:flag.db".into(), "command line".into()));

    // The shown settings are the ones in use, and the same file holds the policies.
    assert_eq!(exit_code(&run(&fixture, &["store", "init"])), 0);
    assert!(fixture.path("here.db").exists());
    assert!(stdout_of(&run(&fixture, &["policy", "show", "report"])).contains("leasehold.toml:3"));
    assert_eq!(exit_code(&run(&fixture, &["policy", "check", "leasehold.toml"])), 0);
}

#[test]
fn secrets_in_urls_are_not_shown() {
    let fixture = Fixture::sqlite();
    fixture.write("leasehold.toml", "store = \"redis://app:hunter2@127.0.0.1:1/0\"\n");
    let trusted = run(&fixture, &["config", "trust"]);
    assert!(stderr_of(&trusted).contains("***") && !stderr_of(&trusted).contains("hunter2"));
    for args in
        [&["config", "show"][..], &["config", "show", "-o", "json", "--origin"], &["list"], &["doctor"]]
    {
        let output = run(&fixture, args);
        let all = format!("{}{}", stdout_of(&output), stderr_of(&output));
        assert!(!all.contains("hunter2") && all.contains("***"), "{args:?}: {all}");
    }
}

#[test]
fn mistakes_are_named_with_line_and_suggestion() {
    let fixture = Fixture::sqlite();
    for (text, expected) in [
        ("stroe = \"x\"\n", "leasehold.toml:1: stroe: this key is unknown: did you mean `store`?"),
        ("\ntimeout = \"5\"\n", "leasehold.toml:2: timeout: has no unit; write `5s`"),
        ("timeout = 5\n", "must be a text in quotes"),
        ("store = \"mysql://h\"\n", "leasehold.toml:1"),
        ("store = \n", "is not TOML"),
    ] {
        fixture.write("leasehold.toml", text);
        // The store of the fourth is taken only from a trusted file; the others cannot be trusted.
        run(&fixture, &["config", "trust"]);
        let output = run(&fixture, &["list"]);
        let message = stderr_of(&output);
        assert_eq!((exit_code(&output), stdout_of(&output).as_str()), (2, ""), "{text}: {message}");
        assert!(message.contains(expected) && message.lines().count() <= 3, "{text}: {message}");
        // `run` has its own exit code for usage errors.
        assert_eq!(exit_code(&run(&fixture, &["run", "demo", "true"])), 125);
    }
}

/// Counts how often a file is opened, from now on.
struct OpenCounter(std::os::fd::OwnedFd);

impl OpenCounter {
    fn watch(path: &std::path::Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        // With the closes between them, the kernel does not merge two opens into one event.
        let events = inotify::WatchFlags::OPEN | inotify::WatchFlags::CLOSE;
        inotify::add_watch(&watch, path, events).unwrap();
        Self(watch)
    }

    fn count(&self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while let Ok(event) = events.next() {
            count += usize::from(event.events().contains(inotify::ReadFlags::OPEN));
        }
        count
    }
}

/// Two reads of one file could see two versions of it.
#[test]
fn a_command_reads_its_configuration_once() {
    let fixture = Fixture::sqlite();
    fixture.write("leasehold.toml", "holder = \"me\"\ntimeout = \"4s\"\n");
    let held = fixture.run(&["acquire", "--token-file", "token", "job:1"]);
    assert_eq!(exit_code(&held), 0, "{}", stderr_of(&held));
    for args in [
        &["list"][..],
        &["show", "job:1"],
        &["run", "job:2", "true"],
        &["elect", "job:3", "true"],
        &["doctor"],
        &["store", "info"],
        &["policy", "show"],
        &["config", "show"],
        &["job", "list"],
        &["break", "job:1", "--reason", "test", "--force", "--wait", "0s"],
    ] {
        let counter = OpenCounter::watch(&fixture.path("leasehold.toml"));
        let ran = fixture.run(args);
        assert!(exit_code(&ran) < 2, "{args:?}: {}", stderr_of(&ran));
        assert_eq!(counter.count(), 1, "{args:?}");
    }
    // Classes in the same file need no second read, except in a client, which watches the file itself.
    fixture.write("leasehold.toml", "[class.report]\nttl = \"45s\"\n");
    for args in [&["list"][..], &["doctor"], &["policy", "show", "report"]] {
        let counter = OpenCounter::watch(&fixture.path("leasehold.toml"));
        let ran = fixture.run(args);
        assert!(exit_code(&ran) < 2, "{args:?}: {}", stderr_of(&ran));
        assert_eq!(counter.count(), 1, "{args:?}");
    }
}
