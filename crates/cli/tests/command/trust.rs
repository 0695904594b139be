//! Which configuration files may name a store: finding 2 of the security review.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::fixture::{Fixture, USER_CONFIG_FILE, exit_code, stderr_of, stdout_of};
use crate::pages::complete;
use crate::schema::parse_valid;

/// A port that notes whether a client connected.
struct Listener(TcpListener);

impl Listener {
    fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn redis_url(&self) -> String {
        format!("redis://{}?password_file=secret", self.0.local_addr().unwrap())
    }

    /// Whether a client connected since the last question. A connection waits in the backlog.
    fn was_reached(&self) -> bool {
        let mut reached = false;
        while self.0.accept().is_ok() {
            reached = true;
        }
        reached
    }
}

/// Runs without a store in the environment.
fn run(fixture: &Fixture, args: &[&str]) -> Output {
    let mut command = fixture.command(args);
    command.env_remove("LEASEHOLD_STORE").env_remove("XDG_CONFIG_HOME").output().unwrap()
}

/// A folder as a cloned repository would be: its file names a host and a private file.
fn hostile_folder(fixture: Fixture, listener: &Listener) -> Fixture {
    fixture.write("secret", "hvs.SECRET\n");
    std::fs::set_permissions(fixture.path("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let store = listener.redis_url();
    let text = format!("store = \"{store}\"\naudit_file = \"stolen\"\ntimeout = \"300ms\"\n");
    fixture.write("leasehold.toml", &text);
    fixture
}

#[test]
fn finding_02_an_untrusted_folder_names_no_store() {
    let listener = Listener::bind();
    let fixture = hostile_folder(Fixture::sqlite(), &listener);
    for args in [&["list"][..], &["show", "x"], &["doctor"], &["store", "info"], &["config", "show"]] {
        let output = run(&fixture, args);
        let message = stderr_of(&output);
        assert!(exit_code(&output) < 2, "{args:?}: {message}");
        assert!(!listener.was_reached(), "{args:?} connected");
        for part in
            ["leasehold.toml is not trusted", "store (leasehold.toml:1)", "audit_file", "config trust"]
        {
            assert!(message.contains(part), "{args:?}: {part}: {message}");
        }
        assert_eq!(message.matches("not trusted").count(), 1, "{args:?}: {message}");
    }
    for (args, code) in [
        (&["run", "x", "touch", "ran"][..], 125),
        (&["elect", "x", "touch", "ran"], 125),
        (&["acquire", "x", "--token-file", "t"], 2),
        (&["break", "x", "--reason", "r"], 2),
        (&["job", "list"], 2),
        (&["workflow", "list"], 2),
        (&["approval", "list"], 2),
        (&["store", "init"], 2),
        (&["serve", "--listen", "127.0.0.1:0"], 2),
    ] {
        let output = run(&fixture, args);
        assert_eq!(exit_code(&output), code, "{args:?}: {}", stderr_of(&output));
        assert!(!listener.was_reached(), "{args:?} connected");
        assert!(stderr_of(&output).contains("leasehold config trust"), "{args:?}: {}", stderr_of(&output));
        assert!(stderr_of(&output).lines().count() <= 3, "{args:?}: {}", stderr_of(&output));
    }
    assert!(!fixture.path("ran").exists() && !fixture.path("stolen").exists());
    // A store by flag or environment needs no trust.
    assert_eq!(exit_code(&fixture.run(&["run", "x", "touch", "ran"])), 0);
    assert!(fixture.path("ran").exists());
    let flag = format!("sqlite:{}", fixture.path("flag.db").display());
    assert_eq!(exit_code(&run(&fixture, &["--store", &flag, "acquire", "x", "--token-file", "t"])), 0);
    // The token file names the store of a release.
    assert_eq!(exit_code(&run(&fixture, &["release", "--token-file", "t"])), 0);
}

#[test]
fn finding_02_trust_is_for_one_folder_and_one_content() {
    let listener = Listener::bind();
    let fixture = hostile_folder(Fixture::sqlite(), &listener);
    let trusted = run(&fixture, &["config", "trust"]);
    assert_eq!(exit_code(&trusted), 0, "{}", stderr_of(&trusted));
    assert!(stderr_of(&trusted).contains("store redis://"), "{}", stderr_of(&trusted));
    let output = run(&fixture, &["list"]);
    assert!(listener.was_reached() && !stderr_of(&output).contains("not trusted"), "{}", stderr_of(&output));
    let records = fixture.path(".local/state/leasehold/trusted");
    for record in std::fs::read_dir(&records).unwrap() {
        assert_eq!(record.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let listed = stdout_of(&run(&fixture, &["config", "trust", "--list"]));
    let canonical = fixture.path("leasehold.toml").canonicalize().unwrap();
    let line = listed.lines().find(|line| line.contains(canonical.to_str().unwrap())).unwrap();
    assert!(line.ends_with("trusted"), "{listed}");

    // The same content in another folder.
    std::fs::create_dir(fixture.path("other")).unwrap();
    std::fs::copy(fixture.path("leasehold.toml"), fixture.path("other/leasehold.toml")).unwrap();
    let mut command = fixture.command(&["list"]);
    command.env_remove("LEASEHOLD_STORE").env_remove("XDG_CONFIG_HOME").current_dir(fixture.path("other"));
    assert!(stderr_of(&command.output().unwrap()).contains("is not trusted"));
    assert!(!listener.was_reached());

    // The same file with other content.
    let text = fixture.read("leasehold.toml");
    fixture.write("leasehold.toml", &format!("{text}holder = \"me\"\n"));
    let changed = run(&fixture, &["list"]);
    assert!(stderr_of(&changed).contains("was changed since it was trusted"), "{}", stderr_of(&changed));
    assert!(!listener.was_reached());
    assert!(stdout_of(&run(&fixture, &["config", "trust", "--list"])).contains("changed since"));
    fixture.write("leasehold.toml", &text);
    run(&fixture, &["list"]);
    assert!(listener.was_reached(), "the trusted content again");
    assert_eq!(exit_code(&run(&fixture, &["config", "untrust", "."])), 0);
    assert_eq!(exit_code(&run(&fixture, &["config", "untrust"])), 1);
    run(&fixture, &["list"]);
    assert!(!listener.was_reached());

    // A record that another user could have written does not count.
    run(&fixture, &["config", "trust"]);
    for record in std::fs::read_dir(&records).unwrap() {
        std::fs::set_permissions(record.unwrap().path(), PermissionsExt::from_mode(0o666)).unwrap();
    }
    run(&fixture, &["list"]);
    assert!(!listener.was_reached());
    for path in ["secret", "nowhere", "other/../secret"] {
        assert_eq!(exit_code(&run(&fixture, &["config", "trust", path])), 2, "{path}");
    }
}

#[test]
fn finding_02_what_was_ignored_is_shown() {
    let listener = Listener::bind();
    let fixture = hostile_folder(Fixture::sqlite(), &listener);
    let shown = parse_valid("config", &stdout_of(&run(&fixture, &["config", "show", "-o", "json"])));
    assert_eq!(shown["settings"]["store"]["origin"], "default");
    let ignored = shown["ignored"].as_array().unwrap();
    let keys: Vec<_> = ignored.iter().map(|one| one["setting"].as_str().unwrap()).collect();
    assert_eq!(keys, ["store", "timeout", "audit_file"]);
    let text = stdout_of(&run(&fixture, &["config", "show", "--origin"]));
    let line = text.lines().find(|line| line.contains("leasehold.toml:1")).unwrap();
    assert!(line.starts_with("store") && line.contains("the file is not trusted"), "{text}");
    // Overridden by the environment: this one would not be in force anyway.
    let overridden = stdout_of(&fixture.run(&["config", "show", "-o", "json"]));
    assert_eq!(parse_valid("config", &overridden)["ignored"].as_array().unwrap().len(), 2);
}

/// Each setting that a file can have is tried, also one that a later version adds.
#[test]
fn finding_02_an_untrusted_folder_sets_classes_only() {
    let fixture = Fixture::sqlite();
    fixture.write("other.toml", "[class.other]\nttl = \"50s\"\n");
    let mut text = String::new();
    for key in leasehold::policy::CLI_SETTING_KEYS {
        let value = match *key {
            "timeout" => "4s",
            "policies" => "other.toml",
            _ => "planted",
        };
        text += &format!("{key} = \"{value}\"\n");
    }
    fixture.write("leasehold.toml", &format!("{text}[class.own]\nttl = \"45s\"\n"));
    let settings = || {
        let shown = stdout_of(&run(&fixture, &["config", "show", "-o", "json"]));
        let settings = parse_valid("config", &shown)["settings"].as_object().unwrap().clone();
        let of_folder =
            |one: &serde_json::Value| one["origin"].as_str().unwrap().starts_with("leasehold.toml:");
        let found: Vec<_> =
            settings.into_iter().filter(|(_, one)| of_folder(one)).map(|(key, _)| key).collect();
        found
    };
    assert_eq!(settings(), Vec::<String>::new());
    assert_eq!(exit_code(&run(&fixture, &["policy", "show", "own"])), 0);
    assert_eq!(exit_code(&run(&fixture, &["policy", "show", "other"])), 2);
    // A store by environment does not make the rest of the folder's file count.
    let policies = fixture.run(&["run", "x", "touch", "ran"]);
    assert_eq!(exit_code(&policies), 125, "{}", stderr_of(&policies));
    assert!(stderr_of(&policies).contains("would follow other classes"), "{}", stderr_of(&policies));
    assert!(!fixture.path("ran").exists());
    let held = fixture.run(&["--policies", "other.toml", "acquire", "x", "--token-file", "t"]);
    assert_eq!(exit_code(&held), 0, "{}", stderr_of(&held));
    assert!(!stdout_of(&fixture.run(&["--policies", "other.toml", "list"])).contains("planted"));
    assert_eq!(exit_code(&run(&fixture, &["config", "trust"])), 0);
    let mut known: Vec<_> = leasehold::policy::CLI_SETTING_KEYS.to_vec();
    known.sort_unstable();
    assert_eq!(settings(), known);
}

#[test]
fn finding_02_a_tab_reads_no_folder_and_sends_no_secret() {
    let listener = Listener::bind();
    // An empty variable means "not set", so the folder's file would name the store.
    let fixture = hostile_folder(Fixture::with_store(""), &listener);
    assert_eq!(complete(&fixture, &["show", "x"]), Vec::<String>::new());
    assert!(!listener.was_reached());
    // Even after trust: a key press is not a command.
    assert_eq!(exit_code(&run(&fixture, &["config", "trust"])), 0);
    assert_eq!(complete(&fixture, &["show", "x"]), Vec::<String>::new());
    assert!(!listener.was_reached());
    fixture.write("leasehold.toml", "[class.workshop]\nttl = \"45s\"\n");
    assert_eq!(complete(&fixture, &["run", "--class", "works"]), Vec::<String>::new());
    for store in [listener.redis_url(), listener.redis_url().replace("password_file", "password%5ffile")] {
        assert_eq!(complete(&fixture, &["--store", &store, "show", "x"]), Vec::<String>::new());
        assert!(!listener.was_reached(), "{store}");
    }
}

#[test]
fn finding_02_memory_from_a_file_excludes_no_process() {
    let fixture = Fixture::sqlite();
    fixture.write_user_config("store = \"memory:\"\n");
    for (args, code) in [
        (&["run", "x", "touch", "ran"][..], 125),
        (&["elect", "x", "touch", "ran"], 125),
        (&["acquire", "x", "--token-file", "t"], 2),
    ] {
        let output = run(&fixture, args);
        assert_eq!(exit_code(&output), code, "{args:?}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains("would not exclude each other"), "{}", stderr_of(&output));
    }
    assert!(!fixture.path("ran").exists());
    assert_eq!(exit_code(&run(&fixture, &["list"])), 0);
    assert_eq!(exit_code(&run(&fixture, &["--store", "memory:", "run", "x", "touch", "ran"])), 0);
}

#[test]
fn finding_02_the_users_file_must_be_the_users() {
    let fixture = Fixture::sqlite();
    let file = USER_CONFIG_FILE;
    fixture.write_user_config(&format!("store = \"sqlite:{}\"\n", fixture.path("user.db").display()));
    let set_mode = |mode| {
        std::fs::set_permissions(fixture.path(file), PermissionsExt::from_mode(mode)).unwrap();
    };
    assert_eq!(exit_code(&run(&fixture, &["run", "x", "true"])), 0);
    for mode in [0o620, 0o602] {
        set_mode(mode);
        let refused = run(&fixture, &["run", "x", "true"]);
        assert_eq!(exit_code(&refused), 125, "{}", stderr_of(&refused));
        let message = stderr_of(&refused);
        assert!(message.contains("can be written by its group or by other users"), "{message}");
        assert!(message.contains("chmod go-w"), "{message}");
        let listed = run(&fixture, &["list"]);
        assert_eq!(exit_code(&listed), 0);
        assert!(stderr_of(&listed).contains("ignored: store"), "{}", stderr_of(&listed));
    }
    set_mode(0o644);
    assert_eq!(exit_code(&run(&fixture, &["run", "x", "true"])), 0);
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(fixture.path(file), Some(65534), None).unwrap();
        let refused = run(&fixture, &["run", "x", "true"]);
        assert_eq!(exit_code(&refused), 125);
        assert!(stderr_of(&refused).contains("belongs to another user"), "{}", stderr_of(&refused));
    }
}
