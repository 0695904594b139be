//! `acquire`, `renew` and `release`: locks held by scripts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::os::unix::fs::PermissionsExt;

use crate::fixture::{Fixture, eventually, exit_code, is_running, stderr_of, stdout_of};
use crate::schema::parse_valid;
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The secret part of a token file.
fn secret(fixture: &Fixture, file: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(&fixture.read(file)).unwrap();
    let token = value["token"].as_str().unwrap().to_owned();
    token.rsplit('|').next().unwrap().to_owned()
}

#[test]
fn a_script_acquires_renews_and_releases() {
    let fixture = Fixture::sqlite();
    let script = "set -e; eval \"$($BIN acquire \"job:'42\")\"; echo \"$LEASEHOLD_NAME $LEASEHOLD_FENCE\"; \
                  test -f \"$LEASEHOLD_TOKEN_FILE\"; $BIN renew; $BIN list -o name; $BIN release; \
                  test ! -e \"$LEASEHOLD_TOKEN_FILE\"; ! $BIN show \"job:'42\"";
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", script])
        .env("BIN", env!("CARGO_BIN_EXE_leasehold"))
        .env("LEASEHOLD_STORE", fixture.store())
        .env("HOME", fixture.path(""))
        .env_remove("XDG_STATE_HOME")
        .current_dir(fixture.path(""));
    let output = command.output().unwrap();
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    let lines = stdout_of(&output);
    let lines: Vec<_> = lines.lines().collect();
    assert!(lines[0].starts_with("job:'42 "), "{lines:?}");
    assert!(lines[1].starts_with("job:'42 is yours for 59"), "{lines:?}");
    assert_eq!(lines[2], "job:'42");
}

#[test]
fn exit_codes_are_success_busy_and_error() {
    let fixture = Fixture::sqlite();
    let taken = fixture.run(&["acquire", "demo", "--token-file", "t", "-o", "json"]);
    assert_eq!(exit_code(&taken), 0, "{}", stderr_of(&taken));
    let json = parse_valid("acquire", &stdout_of(&taken));
    assert!(json["valid_for_ms"].as_u64().unwrap() < 60_000);
    assert_eq!(std::fs::metadata(fixture.path("t")).unwrap().permissions().mode() & 0o777, 0o600);

    let busy = fixture.run(&["acquire", "-n", "demo", "--token-file", "other"]);
    assert_eq!((exit_code(&busy), stdout_of(&busy).as_str()), (1, ""), "{}", stderr_of(&busy));
    assert!(stderr_of(&busy).contains("demo is held by"), "{}", stderr_of(&busy));
    assert!(!fixture.path("other").exists(), "no token for what was not taken");
    // A second acquire must not overwrite the only token of a held lock.
    let covered = fixture.run(&["acquire", "else", "--token-file", "t"]);
    assert_eq!(exit_code(&covered), 2);
    assert!(stderr_of(&covered).contains("is there already"), "{}", stderr_of(&covered));
    assert_eq!(exit_code(&fixture.run(&["show", "else"])), 1, "nothing was taken");

    let renewed = fixture.run(&["renew", "--token-file", "t", "-o", "json"]);
    assert_eq!(
        (exit_code(&renewed), &parse_valid("renew", &stdout_of(&renewed))["renewed"]),
        (0, &true.into())
    );
    let released = fixture.run(&["release", "--token-file", "t", "-o", "json"]);
    assert_eq!(
        (exit_code(&released), &parse_valid("release", &stdout_of(&released))["released"]),
        (0, &true.into())
    );
    assert!(!fixture.path("t").exists());
    let gone = fixture.run(&["release", "--token-file", "t"]);
    assert_eq!(exit_code(&gone), 2, "{}", stderr_of(&gone));
    for verb in ["renew", "release"] {
        let none = fixture.run(&[verb]);
        assert_eq!(exit_code(&none), 2);
        assert!(
            stderr_of(&none).contains("LEASEHOLD_TOKEN_FILE") && stderr_of(&none).lines().count() <= 3,
            "{}",
            stderr_of(&none)
        );
    }
}

#[test]
fn a_lost_lock_is_reported_as_lost() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--ttl", "200ms", "--token-file", "t"])), 0);
    eventually("the lease to run out", || exit_code(&fixture.run(&["show", "demo"])) == 1);
    let renewed = fixture.run(&["renew", "--token-file", "t", "-o", "json"]);
    assert_eq!(exit_code(&renewed), 1);
    assert_eq!(parse_valid("renew", &stdout_of(&renewed))["renewed"], false);
    assert!(stderr_of(&renewed).contains("demo is lost"), "{}", stderr_of(&renewed));
    // Another client holds it now: a release with the old token must not affect it.
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "u"])), 0);
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 1);
    assert_eq!(exit_code(&fixture.run(&["show", "demo"])), 0);
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "u"])), 0);
}

/// The lease is extended although its token file cannot be rewritten, and the command says both.
#[test]
fn a_renewal_whose_token_file_cannot_be_rewritten_is_a_success() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--ttl", "1m", "--token-file", "t"])), 0);
    // The file can be read by this path, but no file can be created beside it, not even by a superuser.
    let mut renew =
        fixture.command(&["renew", "--ttl", "10m", "--token-file", "/proc/self/fd/0", "-o", "json"]);
    let renewed = renew.stdin(std::fs::File::open(fixture.path("t")).unwrap()).output().unwrap();
    assert_eq!(exit_code(&renewed), 0, "{}", stderr_of(&renewed));
    let json = parse_valid("renew", &stdout_of(&renewed));
    assert_eq!(json["renewed"], true);
    assert!(json["valid_for_ms"].as_u64().unwrap() > 500_000, "{json}");
    assert!(
        stderr_of(&renewed).contains("was extended, but its token file could not be rewritten")
            && stderr_of(&renewed).lines().count() <= 3,
        "{}",
        stderr_of(&renewed)
    );
    // The file still has the token, with the earlier time to live.
    let again = fixture.run(&["renew", "--token-file", "t", "-o", "json"]);
    assert!(parse_valid("renew", &stdout_of(&again))["valid_for_ms"].as_u64().unwrap() < 60_000);
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 0);
}

#[test]
fn the_token_is_in_its_file_and_nowhere_else() {
    let fixture = Fixture::sqlite();
    let mut said_all = String::new();
    for args in [
        &["acquire", "demo", "--token-file", "t", "-o", "json"][..],
        &["acquire", "demo", "-n", "--token-file", "u"],
        &["renew", "--token-file", "t", "-o", "json"],
        &["list", "-o", "json"],
        &["show", "demo", "-o", "json"],
        &["watch", "--all", "--count", "1", "-o", "jsonl"],
    ] {
        let mut command = fixture.command(args);
        let output = command.env("LEASEHOLD_LOG", "trace").output().unwrap();
        said_all += &format!("{}{}", stdout_of(&output), stderr_of(&output));
    }
    let secret = secret(&fixture, "t");
    assert!(secret.len() == 32 && !said_all.contains(&secret), "{said_all}");
    // On request the token is printed, and the output is a valid token file.
    let asked = fixture.run(&["acquire", "other", "--token-file", "-"]);
    fixture.write("printed", &stdout_of(&asked));
    std::fs::set_permissions(fixture.path("printed"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "printed"])), 0);
    // A token file that other users can read is refused.
    std::fs::set_permissions(fixture.path("t"), PermissionsExt::from_mode(0o644)).unwrap();
    let open = fixture.run(&["renew", "--token-file", "t"]);
    assert_eq!(exit_code(&open), 2);
    assert!(
        stderr_of(&open).contains("chmod 600") && !stderr_of(&open).contains(&secret),
        "{}",
        stderr_of(&open)
    );
}

#[test]
fn a_token_is_valid_in_its_own_store_only() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let elsewhere = fixture.run(&["--store", "sqlite:elsewhere.db", "release", "--token-file", "t"]);
    assert_eq!(exit_code(&elsewhere), 2, "{}", stderr_of(&elsewhere));
    assert!(stderr_of(&elsewhere).contains("leave --store out"), "{}", stderr_of(&elsewhere));
    // Without --store the token file decides, not the environment.
    let mut command = fixture.command(&["release", "--token-file", "t"]);
    let output = command.env("LEASEHOLD_STORE", "sqlite:elsewhere.db").output().unwrap();
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
}

/// An interrupted acquire leaves no lease and no waiter; a killed one leaves a token that can release it.
#[test]
fn an_interrupted_acquire_leaves_nothing() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let mut waiting = fixture.start(&["acquire", "-w", "50s", "demo", "--token-file", "u"]);
    let waiters = || {
        let list: serde_json::Value =
            serde_json::from_str(&stdout_of(&fixture.run(&["list", "-o", "json"]))).unwrap();
        list["leases"][0]["waiters"].as_u64().unwrap()
    };
    eventually("a waiter", || waiters() == 1);
    waiting.signal(Signal::INT);
    assert_eq!(waiting.wait_exit_code(), 2, "{}", waiting.stderr());
    assert_eq!((waiters(), fixture.path("u").exists()), (0, false));

    let mut killed = fixture.start(&["acquire", "-w", "50s", "demo", "--token-file", "u"]);
    eventually("a waiter", || waiters() == 1);
    killed.signal(Signal::KILL);
    killed.wait_exit_code();
    assert!(!is_running(killed.pid()));
    let renew = fixture.run(&["renew", "--token-file", "u"]);
    assert_eq!(exit_code(&renew), 2, "{}", stderr_of(&renew));
    assert!(stderr_of(&renew).contains("interrupted"), "{}", stderr_of(&renew));
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "u"])), 1, "it was never granted");
    assert_eq!((waiters(), fixture.path("u").exists()), (0, false));
}

/// A waiter gets a released lock, with a greater fence.
#[test]
fn a_waiting_acquire_gets_a_released_lock() {
    let fixture = Fixture::sqlite();
    let first = stdout_of(&fixture.run(&["acquire", "demo", "--token-file", "t", "-o", "fence"]));
    let mut second = fixture.start(&["acquire", "-w", "50s", "demo", "--token-file", "u", "-o", "fence"]);
    eventually("a waiter", || stdout_of(&fixture.run(&["list", "-o", "wide"])).trim_end().ends_with('1'));
    assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "t"])), 0);
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(number(&second.stdout()) > number(&first));
}

#[test]
fn an_unresponsive_store_is_an_error_and_nothing_is_acquired() {
    let mut redis = block_on(RedisServer::start()).expect("redis-server must be installed");
    let fixture = Fixture::with_store(redis.url());
    assert_eq!(exit_code(&fixture.run(&["acquire", "held", "--token-file", "t"])), 0);
    redis.stop();
    for class in ["scheduler", "workflow"] {
        let output = fixture.run(&["acquire", "--class", class, "demo", "--token-file", "u"]);
        assert_eq!(exit_code(&output), 2, "{}", stderr_of(&output));
        assert!(
            stderr_of(&output).contains("nothing was taken") && stderr_of(&output).lines().count() <= 3,
            "{}",
            stderr_of(&output)
        );
        assert!(!fixture.path("u").exists());
    }
    fixture.write_user_config("timeout = \"300ms\"\n");
    for verb in ["renew", "release"] {
        let output = fixture.run(&[verb, "--token-file", "t"]);
        assert_eq!(exit_code(&output), 2, "{}", stderr_of(&output));
        assert!(
            stderr_of(&output).contains("did not confirm") && stderr_of(&output).lines().count() <= 3,
            "{}",
            stderr_of(&output)
        );
    }
    assert!(fixture.path("t").exists(), "one can try again");
}
