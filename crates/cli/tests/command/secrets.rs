//! Secrets never appear in output: a password, an API token, a TLS key, a lock's token.
//!
//! Each process gets known secrets, and everything it writes is searched for them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::fixture::{Fixture, eventually, exit_code, stderr_of, stdout_of};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

const PASSWORD: &str = "hunter2-of-the-store";

fn write_private_file(fixture: &Fixture, file: &str, text: &str) -> String {
    fixture.write(file, text);
    std::fs::set_permissions(fixture.path(file), PermissionsExt::from_mode(0o600)).unwrap();
    fixture.path(file).display().to_string()
}

/// Creates a certificate for localhost.
fn certificate(fixture: &Fixture) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-days", "2", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(fixture.path("."))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::set_permissions(fixture.path("key.pem"), PermissionsExt::from_mode(0o600)).unwrap();
}

/// All collected output, each with its source.
#[derive(Default)]
struct CollectedOutput(Vec<(String, String)>);

impl CollectedOutput {
    fn add(&mut self, what: &str, text: String) {
        self.0.push((what.to_owned(), text));
    }

    fn add_output(&mut self, what: &str, output: &Output) {
        self.add(what, format!("{}\n{}", stdout_of(output), stderr_of(output)));
    }
}

#[test]
fn no_process_writes_a_secret() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redis = runtime
        .block_on(RedisServer::start_with(&["--requirepass", PASSWORD]))
        .expect("redis-server must be installed");
    let files = Fixture::sqlite();
    let password = write_private_file(&files, "password", PASSWORD);
    let wrong = write_private_file(&files, "wrong", "hunter2-but-wrong");
    certificate(&files);
    let key: String = files.read("key.pem").lines().nth(1).unwrap().to_owned();
    let made = files.run(&["token", "new", "root", "--grant", "admin:*", "--file", "tokens.toml"]);
    assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
    let api = stdout_of(&made).trim().to_owned();
    let token = write_private_file(&files, "api.token", &api);
    let bad = write_private_file(&files, "bad.token", "lk_root_hunter2badtoken");
    let path = |file: &str| files.path(file).display().to_string();

    let store = format!("redis://127.0.0.1:{}?password_file={password}", redis.port());
    let behind = Fixture::with_store(&store);
    let (tokens, cert, key_file, state) =
        (path("tokens.toml"), path("cert.pem"), path("key.pem"), path("state"));
    let loud = |command: &mut Command| {
        command.env("LEASEHOLD_LOG", "trace");
    };
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--state",
        &state,
        "--tokens",
        &tokens,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key_file,
    ];
    let mut daemon = behind.start_with(&serve, loud);
    let mut address = String::new();
    eventually("the daemon", || {
        let message = daemon.stderr();
        let found = message.split_whitespace().find(|word| word.starts_with("https://"));
        address = found.unwrap_or_default().to_owned();
        !address.is_empty()
    });

    let mut seen = CollectedOutput::default();
    let mut nonces = Vec::new();
    let url = format!("{address}?token_file={token}&ca_file={cert}");
    // Directly on the store and through the daemon, with succeeding and failing commands.
    for (way, fixture) in [("store", Fixture::with_store(&store)), ("daemon", Fixture::with_store(&url))] {
        let mut watch = (way == "daemon").then(|| {
            let watch = fixture.start_with(&["watch", "--events", "-o", "jsonl"], loud);
            watch.wait_for_stderr("following");
            watch
        });
        let mut run = |args: &[&str], expected: i32| {
            let mut command = fixture.command(args);
            loud(&mut command);
            let output = command.output().unwrap();
            assert_eq!(exit_code(&output), expected, "{way} {args:?}: {}", stderr_of(&output));
            seen.add_output(&format!("{way}: {}", args.join(" ")), &output);
        };
        run(&["acquire", "job:1", "--token-file", "lock.token"], 0);
        let owner = fixture.read("lock.token");
        run(&["renew", "--token-file", "lock.token"], 0);
        run(&["acquire", "-n", "job:1", "--token-file", "other.token"], 1);
        run(&["list", "-o", "json"], 0);
        run(&["show", "job:1"], 0);
        run(&["top"], 0);
        run(&["run", "-n", "job:1", "true"], 124);
        run(&["run", "job:2", "--", "env"], 0);
        run(&["run", "--metrics-file", "m.prom", "job:2", "true"], 0);
        run(&["break", "job:1", "--reason", "test", "--force", "--wait", "0s"], 0);
        run(&["release", "--token-file", "lock.token"], 1);
        run(&["doctor", "-o", "json"], if way == "store" { 1 } else { 0 });
        run(&["config", "show", "--origin"], 0);
        run(&["store", "info"], 0);
        run(&["policy", "show"], 0);
        if let Some(watch) = &mut watch {
            eventually("the break", || watch.stdout().contains("\"broken\""));
            run(&["policy", "set", "workflow", "ttl", "40s", "--for", "1m", "--reason", "test"], 0);
            run(&["policy", "history"], 0);
            watch.signal(Signal::KILL);
            watch.wait_exit_code();
            seen.add("watch", format!("{}{}", watch.stdout(), watch.stderr()));
        }
        let nonce = owner.split(|letter: char| !letter.is_ascii_hexdigit()).find(|word| word.len() == 32);
        nonces.push(nonce.expect("a lock's token").to_owned());
        seen.add("the metrics file", fixture.read("m.prom"));
        seen.add("audit_file", fixture.read(".local/state/leasehold/audit.jsonl"));
    }
    // Wrong secrets must not be echoed either.
    for store in [
        format!("redis://127.0.0.1:{}?password_file={wrong}", redis.port()),
        format!("redis://:{PASSWORD}@127.0.0.1:{}", redis.port()),
        format!("{address}?token_file={bad}&ca_file={cert}"),
        format!("https://root:{PASSWORD}@{}", address.trim_start_matches("https://")),
    ] {
        let fixture = Fixture::with_store(store);
        let mut command = fixture.command(&["list"]);
        loud(&mut command);
        let output = command.output().unwrap();
        assert_eq!(exit_code(&output), 2, "{}", stderr_of(&output));
        seen.add_output("a wrong secret", &output);
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait_exit_code(), 0, "{}", daemon.stderr());
    let log = daemon.stderr();
    assert!(log.contains("TRACE") && log.contains("/v1/locks/{name}/renew"), "the log was on");
    seen.add("the daemon's log", log + &daemon.stdout());
    for file in ["audit.jsonl", "daemon.db", "daemon.db-wal"] {
        let bytes = std::fs::read(files.path("state").join(file)).unwrap_or_default();
        seen.add(file, String::from_utf8_lossy(&bytes).into_owned());
    }
    seen.add("tokens.toml", files.read("tokens.toml"));
    assert!(seen.0.iter().any(|(what, text)| what == "audit.jsonl" && text.contains("\"break\"")));
    let api = api.rsplit_once('_').unwrap().1;
    for (what, text) in &seen.0 {
        let secrets = [PASSWORD, "hunter2-but-wrong", "hunter2badtoken", api, &key];
        for secret in secrets.into_iter().chain(nonces.iter().map(String::as_str)) {
            assert!(!text.contains(secret), "{what} has {secret}: {text}");
        }
    }
}
