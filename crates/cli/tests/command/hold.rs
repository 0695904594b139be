//! `acquire`, `renew` and `release`: a lock that a script keeps.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use std::os::unix::fs::PermissionsExt;

use crate::schema::valid;
use crate::stage::{Stage, alive, code, eventually, printed, said};
use leasehold_redis::testkit::RedisServer;
use rustix::process::Signal;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// The secret part of a token file.
fn secret(stage: &Stage, file: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(&stage.read(file)).unwrap();
    let token = value["token"].as_str().unwrap().to_owned();
    token.rsplit('|').next().unwrap().to_owned()
}

#[test]
fn a_script_takes_keeps_and_gives_back() {
    let stage = Stage::sqlite();
    let script = "set -e; eval \"$($BIN acquire \"job:'42\")\"; echo \"$LEASEHOLD_NAME $LEASEHOLD_FENCE\"; \
                  test -f \"$LEASEHOLD_TOKEN_FILE\"; $BIN renew; $BIN list -o name; $BIN release; \
                  test ! -e \"$LEASEHOLD_TOKEN_FILE\"; ! $BIN show \"job:'42\"";
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", script])
        .env("BIN", env!("CARGO_BIN_EXE_leasehold"))
        .env("LEASEHOLD_STORE", stage.store())
        .env("HOME", stage.path(""))
        .env_remove("XDG_STATE_HOME")
        .current_dir(stage.path(""));
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    let lines = printed(&output);
    let lines: Vec<_> = lines.lines().collect();
    assert!(lines[0].starts_with("job:'42 "), "{lines:?}");
    assert!(lines[1].starts_with("job:'42 is yours for 59"), "{lines:?}");
    assert_eq!(lines[2], "job:'42");
}

#[test]
fn the_answers_are_yes_no_and_error() {
    let stage = Stage::sqlite();
    let taken = stage.run(&["acquire", "demo", "--token-file", "t", "-o", "json"]);
    assert_eq!(code(&taken), 0, "{}", said(&taken));
    let json = valid("acquire", &printed(&taken));
    assert!(json["valid_for_ms"].as_u64().unwrap() < 60_000);
    assert_eq!(
        std::fs::metadata(stage.path("t")).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let busy = stage.run(&["acquire", "-n", "demo", "--token-file", "other"]);
    assert_eq!((code(&busy), printed(&busy).as_str()), (1, ""), "{}", said(&busy));
    assert!(said(&busy).contains("demo is held by"), "{}", said(&busy));
    assert!(!stage.path("other").exists(), "no token for what was not taken");
    // A second acquire must not cover the only token of a held lock.
    let covered = stage.run(&["acquire", "else", "--token-file", "t"]);
    assert_eq!(code(&covered), 2);
    assert!(said(&covered).contains("is there already"), "{}", said(&covered));
    assert_eq!(code(&stage.run(&["show", "else"])), 1, "nothing was taken");

    let renewed = stage.run(&["renew", "--token-file", "t", "-o", "json"]);
    assert_eq!(
        (code(&renewed), &valid("renew", &printed(&renewed))["renewed"]),
        (0, &true.into())
    );
    let released = stage.run(&["release", "--token-file", "t", "-o", "json"]);
    assert_eq!(
        (
            code(&released),
            &valid("release", &printed(&released))["released"]
        ),
        (0, &true.into())
    );
    assert!(!stage.path("t").exists());
    let gone = stage.run(&["release", "--token-file", "t"]);
    assert_eq!(code(&gone), 2, "{}", said(&gone));
    for verb in ["renew", "release"] {
        let none = stage.run(&[verb]);
        assert_eq!(code(&none), 2);
        assert!(
            said(&none).contains("LEASEHOLD_TOKEN_FILE") && said(&none).lines().count() <= 3,
            "{}",
            said(&none)
        );
    }
}

#[test]
fn what_is_lost_is_said_to_be_lost() {
    let stage = Stage::sqlite();
    assert_eq!(
        code(&stage.run(&["acquire", "demo", "--ttl", "200ms", "--token-file", "t"])),
        0
    );
    eventually("the lease to run out", || {
        code(&stage.run(&["show", "demo"])) == 1
    });
    let renewed = stage.run(&["renew", "--token-file", "t", "-o", "json"]);
    assert_eq!(code(&renewed), 1);
    assert_eq!(valid("renew", &printed(&renewed))["renewed"], false);
    assert!(said(&renewed).contains("demo is lost"), "{}", said(&renewed));
    // Someone else has it now: our release must not touch theirs.
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "u"])), 0);
    assert_eq!(code(&stage.run(&["release", "--token-file", "t"])), 1);
    assert_eq!(code(&stage.run(&["show", "demo"])), 0);
    assert_eq!(code(&stage.run(&["release", "--token-file", "u"])), 0);
}

#[test]
fn the_token_is_in_its_file_and_nowhere_else() {
    let stage = Stage::sqlite();
    let mut said_all = String::new();
    for args in [
        &["acquire", "demo", "--token-file", "t", "-o", "json"][..],
        &["acquire", "demo", "-n", "--token-file", "u"],
        &["renew", "--token-file", "t", "-o", "json"],
        &["list", "-o", "json"],
        &["show", "demo", "-o", "json"],
        &["watch", "--all", "--count", "1", "-o", "jsonl"],
    ] {
        let mut command = stage.command(args);
        let output = command.env("LEASEHOLD_LOG", "trace").output().unwrap();
        said_all += &format!("{}{}", printed(&output), said(&output));
    }
    let secret = secret(&stage, "t");
    assert!(secret.len() == 32 && !said_all.contains(&secret), "{said_all}");
    // Asked for, it is printed, and what was printed is a token file.
    let asked = stage.run(&["acquire", "other", "--token-file", "-"]);
    stage.write("printed", &printed(&asked));
    std::fs::set_permissions(stage.path("printed"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(code(&stage.run(&["release", "--token-file", "printed"])), 0);
    // One that others can read is refused.
    std::fs::set_permissions(stage.path("t"), PermissionsExt::from_mode(0o644)).unwrap();
    let open = stage.run(&["renew", "--token-file", "t"]);
    assert_eq!(code(&open), 2);
    assert!(
        said(&open).contains("chmod 600") && !said(&open).contains(&secret),
        "{}",
        said(&open)
    );
}

#[test]
fn a_token_counts_in_its_own_store_only() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let elsewhere = stage.run(&["--store", "sqlite:elsewhere.db", "release", "--token-file", "t"]);
    assert_eq!(code(&elsewhere), 2, "{}", said(&elsewhere));
    assert!(
        said(&elsewhere).contains("leave --store out"),
        "{}",
        said(&elsewhere)
    );
    // Without --store the file says which, whatever the environment says.
    let mut command = stage.command(&["release", "--token-file", "t"]);
    let output = command
        .env("LEASEHOLD_STORE", "sqlite:elsewhere.db")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
}

/// An acquire that is interrupted leaves no lease and no waiter; one that is killed leaves a token to take it back with.
#[test]
fn an_interrupted_acquire_leaves_nothing() {
    let stage = Stage::sqlite();
    assert_eq!(code(&stage.run(&["acquire", "demo", "--token-file", "t"])), 0);
    let mut waiting = stage.start(&["acquire", "-w", "50s", "demo", "--token-file", "u"]);
    let waiters = || {
        let list: serde_json::Value =
            serde_json::from_str(&printed(&stage.run(&["list", "-o", "json"]))).unwrap();
        list["leases"][0]["waiters"].as_u64().unwrap()
    };
    eventually("a waiter", || waiters() == 1);
    waiting.signal(Signal::INT);
    assert_eq!(waiting.code(), 2, "{}", waiting.stderr());
    assert_eq!((waiters(), stage.path("u").exists()), (0, false));

    let mut killed = stage.start(&["acquire", "-w", "50s", "demo", "--token-file", "u"]);
    eventually("a waiter", || waiters() == 1);
    killed.signal(Signal::KILL);
    killed.code();
    assert!(!alive(killed.pid()));
    let renew = stage.run(&["renew", "--token-file", "u"]);
    assert_eq!(code(&renew), 2, "{}", said(&renew));
    assert!(said(&renew).contains("interrupted"), "{}", said(&renew));
    assert_eq!(
        code(&stage.run(&["release", "--token-file", "u"])),
        1,
        "it was never granted"
    );
    assert_eq!((waiters(), stage.path("u").exists()), (0, false));
}

/// A waiter gets what is given back, with a greater fence.
#[test]
fn a_waiting_acquire_is_served() {
    let stage = Stage::sqlite();
    let first = printed(&stage.run(&["acquire", "demo", "--token-file", "t", "-o", "fence"]));
    let mut second = stage.start(&["acquire", "-w", "50s", "demo", "--token-file", "u", "-o", "fence"]);
    eventually("a waiter", || {
        printed(&stage.run(&["list", "-o", "wide"]))
            .trim_end()
            .ends_with('1')
    });
    assert_eq!(code(&stage.run(&["release", "--token-file", "t"])), 0);
    assert_eq!(second.code(), 0, "{}", second.stderr());
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(number(&second.stdout()) > number(&first));
}

#[test]
fn a_store_that_does_not_answer_is_an_error_and_nothing_is_taken() {
    let mut redis = block_on(RedisServer::start()).expect("redis-server must be installed");
    let stage = Stage::at(redis.url());
    assert_eq!(code(&stage.run(&["acquire", "held", "--token-file", "t"])), 0);
    redis.stop();
    for class in ["scheduler", "workflow"] {
        let output = stage.run(&["acquire", "--class", class, "demo", "--token-file", "u"]);
        assert_eq!(code(&output), 2, "{}", said(&output));
        assert!(
            said(&output).contains("nothing was taken") && said(&output).lines().count() <= 3,
            "{}",
            said(&output)
        );
        assert!(!stage.path("u").exists());
    }
    stage.write("leasehold.toml", "timeout = \"300ms\"\n");
    for verb in ["renew", "release"] {
        let output = stage.run(&[verb, "--token-file", "t"]);
        assert_eq!(code(&output), 2, "{}", said(&output));
        assert!(
            said(&output).contains("did not confirm") && said(&output).lines().count() <= 3,
            "{}",
            said(&output)
        );
    }
    assert!(stage.path("t").exists(), "one can try again");
}
