//! `doctor` against real servers that are set up badly, and files in bad places.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, and what they share"
)]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::schema::valid;
use crate::stage::{Stage, code, eventually, printed, said};
use leasehold_redis::testkit::RedisServer;
use serde_json::Value;

fn redis(args: &[&str]) -> RedisServer {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(RedisServer::with(args))
        .expect("redis-server must be installed")
}

const GOOD: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// What the doctor says of this store.
struct Said {
    code: i32,
    json: Value,
    all: String,
}

impl Said {
    fn of(stage: &Stage, more: &[&str]) -> Self {
        let mut args = vec!["doctor", "-o", "json"];
        args.extend(more);
        let output = stage.run(&args);
        let all = format!("{}{}", printed(&output), said(&output));
        assert!(code(&output) < 2, "{all}");
        Self {
            code: code(&output),
            json: valid("doctor", &printed(&output)),
            all,
        }
    }

    fn codes(&self, severity: &str) -> Vec<&str> {
        let findings = self.json["findings"].as_array().unwrap();
        let these = findings.iter().filter(|finding| finding["severity"] == severity);
        these.map(|finding| finding["code"].as_str().unwrap()).collect()
    }

    /// The finding with this code says this, and what to do.
    fn says(&self, code: &str, what: &str, advice: &str) {
        let findings = self.json["findings"].as_array().unwrap();
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        assert!(
            findings.iter().any(|finding| {
                finding["code"] == code
                    && text(finding, "what").contains(what)
                    && text(finding, "advice").contains(advice)
            }),
            "no {code} with {what:?} and {advice:?} in {}",
            self.all
        );
    }
}

fn cli(server: &RedisServer, words: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &server.port().to_string()])
        .args(words)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_good_server_is_clean_and_nothing_is_left_in_it() {
    let server = redis(&GOOD);
    let stage = Stage::at(server.url());
    let said = Said::of(&stage, &[]);
    assert_eq!(
        (said.code, &said.json["clean"]),
        (0, &true.into()),
        "{}",
        said.all
    );
    assert_eq!(said.json["findings"], serde_json::json!([]), "{}", said.all);
    assert_eq!(said.json["promise"], "durable");
    assert!(said.json["round_trip_us"].as_u64().unwrap() > 0);
    // The trial's lock is gone; tombstones of what was undone and the fence counter may stay for a while.
    assert!(
        !cli(&server, &["KEYS", "*"])
            .lines()
            .any(|key| key.starts_with("lock:"))
    );
    let text = stage.run(&["doctor"]);
    assert!(printed(&text).ends_with("nothing found\n"), "{}", printed(&text));
}

#[test]
fn eviction_and_missing_persistence_are_named_and_the_class_is_refused() {
    let server = redis(&["--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru"]);
    let stage = Stage::at(server.url());
    let said = Said::of(&stage, &[]);
    assert_eq!((said.code, &said.json["clean"]), (1, &false.into()));
    said.says("redis.eviction", "first to go", "maxmemory-policy noeviction");
    said.says(
        "redis.persistence",
        "a restart or crash of the server forgets",
        "appendonly yes",
    );
    assert_eq!(said.json["promise"], "volatile");
    // Known and accepted: it does not count, but is still shown.
    let accepted = Said::of(
        &stage,
        &["--accept", "redis.eviction", "--accept", "redis.persistence"],
    );
    assert_eq!((accepted.code, accepted.codes("breaks").len()), (0, 2));
    // A class that demands more than that is refused, by the doctor and by `run`, with the reason.
    stage.write(
        "leasehold.toml",
        "[class.books]\nttl = \"60s\"\nrequires = \"durable\"\n",
    );
    let said = Said::of(
        &stage,
        &["--accept", "redis.eviction", "--accept", "redis.persistence"],
    );
    assert_eq!(said.code, 1);
    said.says(
        "class.requires",
        "class books is refused: it requires durable and the store promises only volatile",
        "requires",
    );
    said.says("class.requires", "appendonly is off", "mend");
    let run = stage.run(&["run", "--class", "books", "demo", "true"]);
    assert_eq!(code(&run), 125);
}

#[test]
fn replicas_that_follow_asynchronously_and_waits_that_cannot_end() {
    let primary = redis(&GOOD);
    let port = primary.port().to_string();
    let replica = redis(&["--replicaof", "127.0.0.1", &port]);
    eventually("the replica", || {
        cli(&primary, &["INFO", "replication"]).contains("state=online")
    });
    let stage = Stage::at(primary.url());
    let said = Said::of(&stage, &[]);
    assert_eq!(said.code, 1);
    said.says(
        "redis.async-replicas",
        "a fail-over can forget",
        "wait_replicas=1",
    );
    let waits = Said::of(&Stage::at(format!("{}?wait_replicas=1", primary.url())), &[]);
    assert_eq!((waits.code, waits.codes("breaks").len()), (0, 0), "{}", waits.all);
    let too_many = Said::of(&Stage::at(format!("{}?wait_replicas=2", primary.url())), &[]);
    assert_eq!(too_many.code, 1);
    too_many.says(
        "redis.wait-replicas",
        "no lock can be granted",
        "lower wait_replicas",
    );
    let said = Said::of(&Stage::at(replica.url()), &[]);
    assert_eq!(said.code, 1);
    said.says(
        "redis.replica",
        &format!("a replica of 127.0.0.1:{port}"),
        "connect to the primary",
    );
}

#[test]
fn a_server_with_a_wrong_clock() {
    let server = redis(&GOOD);
    let stage = Stage::at(server.url());
    // Our own clock is the one that is set: the difference is the same, and the server stays as it is.
    let run = |shift: &str| {
        let output = Command::new("faketime")
            .args([
                "-f",
                shift,
                env!("CARGO_BIN_EXE_leasehold"),
                "--store",
                stage.store(),
                "doctor",
                "-o",
                "json",
            ])
            .env("HOME", stage.path(""))
            .env("DONT_FAKE_MONOTONIC", "1")
            .current_dir(stage.path(""))
            .output()
            .expect("faketime must be installed");
        (code(&output), valid("doctor", &printed(&output)))
    };
    for (shift, way) in [("-90s", "90.0s ahead of"), ("+90s", "90.0s behind")] {
        let (code, json) = run(shift);
        let finding = &json["findings"][0];
        assert_eq!(
            (code, finding["code"].as_str()),
            (1, Some("redis.clock")),
            "{json:#}"
        );
        assert!(finding["what"].as_str().unwrap().contains(&way[..3]), "{finding}");
        assert!(
            finding["advice"].as_str().unwrap().contains("chrony"),
            "{finding}"
        );
    }
}

#[test]
fn missing_rights_are_named() {
    let server = redis(&GOOD);
    let page = include_str!("../../../../docs/stores/redis.md");
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER locks "))
        .unwrap();
    let password = server.dir().join("password");
    std::fs::write(&password, "hunter2").unwrap();
    std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    let user = |without: &[&str]| {
        let line = line.replace(">PASSWORD", ">hunter2");
        let words: Vec<_> = line.split(' ').filter(|word| !without.contains(word)).collect();
        cli(&server, &["ACL", "DELUSER", "locks"]);
        assert_eq!(cli(&server, &words).trim(), "OK");
        let url = server.url().replace("redis://", "redis://locks@");
        let said = Said::of(
            &Stage::at(format!("{url}?password_file={}", password.display())),
            &[],
        );
        assert!(!said.all.contains("hunter2"));
        said
    };
    let good = user(&[]);
    assert_eq!((good.code, good.codes("breaks").len()), (0, 0), "{}", good.all);
    let blind = user(&["+info"]);
    assert_eq!(blind.code, 1);
    blind.says("redis.permission", "may not run INFO", "+info");
    let timeless = user(&["+time"]);
    assert_eq!(timeless.code, 1);
    timeless.says("redis.permission", "may not run TIME", "+time");
    for (right, cannot) in [("+pttl", "wait for a lock"), ("+incr", "take a lock")] {
        let unable = user(&[right]);
        assert_eq!(unable.code, 1, "{}", unable.all);
        unable.says(
            "store.permission",
            &format!("this user may not {cannot}"),
            "ACL line",
        );
    }
    let queueless = user(&["+zadd"]);
    assert_eq!(queueless.code, 0, "{}", queueless.all);
    queueless.says("store.queue", "served in no order", "ACL line");
    let unlisted = user(&["+scan"]);
    assert_eq!(unlisted.code, 0, "{}", unlisted.all);
    unlisted.says("store.permission", "may not list locks", "+scan");
    // No such user at all.
    cli(&server, &["ACL", "DELUSER", "locks"]);
    let url = server.url().replace("redis://", "redis://locks@");
    let said = Said::of(
        &Stage::at(format!("{url}?password_file={}", password.display())),
        &[],
    );
    assert_eq!(said.code, 1);
    said.says("redis.access", "refuses us", "password_file=");
    // And a server that wants a password from everyone.
    cli(&server, &["CONFIG", "SET", "requirepass", "x"]);
    let said = Said::of(&Stage::at(server.url()), &[]);
    assert_eq!(said.code, 1, "{}", said.all);
}

#[test]
fn a_crowded_server() {
    let server = redis(&[&GOOD[..], &["--maxclients", "12"]].concat());
    let crowd: Vec<_> = (0..9)
        .map(|_| std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap())
        .collect();
    let said = Said::of(&Stage::at(server.url()), &["--look-only"]);
    said.says("redis.clients", "turned away", "maxclients");
    drop(crowd);
}

#[test]
fn what_cannot_be_looked_at_is_an_error() {
    for store in ["redis://127.0.0.1:1", "mysql://h", "sqlite:"] {
        let output = Stage::at(store).run(&["doctor"]);
        assert_eq!(
            (code(&output), printed(&output).as_str()),
            (2, ""),
            "{}",
            said(&output)
        );
        assert!(said(&output).lines().count() <= 3, "{}", said(&output));
    }
}

/// Without what is so of the machine that runs the tests.
fn own<'a>(codes: &[&'a str]) -> Vec<&'a str> {
    let machine = ["sqlite.container-layer", "sqlite.memory-filesystem"];
    codes
        .iter()
        .copied()
        .filter(|code| !machine.contains(code))
        .collect()
}

#[test]
fn files_in_good_and_bad_places() {
    let stage = Stage::sqlite();
    let missing = Said::of(&stage, &[]);
    missing.says("sqlite.missing", "is not there yet", "leasehold store init");
    assert!(!stage.path("locks.db").exists(), "a look makes nothing");
    assert_eq!(code(&stage.run(&["store", "init"])), 0);
    let good = Said::of(&stage, &[]);
    assert_eq!(own(&good.codes("breaks")), Vec::<&str>::new(), "{}", good.all);
    assert_eq!(good.json["promise"], "durable");

    std::fs::set_permissions(stage.path("locks.db"), PermissionsExt::from_mode(0o666)).unwrap();
    let open = Said::of(&stage, &[]);
    assert_eq!(open.code, 1);
    open.says("sqlite.permission", "anyone can end anyone's lock", "chmod o-w");
    std::fs::set_permissions(stage.path("locks.db"), PermissionsExt::from_mode(0o600)).unwrap();
    let db = rusqlite::Connection::open(stage.path("locks.db")).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    drop(db);
    Said::of(&stage, &["--look-only"]).says("sqlite.journal", "not wal", "PRAGMA journal_mode = WAL");

    let other = rusqlite::Connection::open(stage.path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(other);
    let foreign = Said::of(
        &Stage::at(format!("sqlite:{}", stage.path("other.db").display())),
        &[],
    );
    assert_eq!(foreign.code, 1);
    foreign.says("sqlite.foreign", "another program's database", "file of its own");

    if std::path::Path::new("/dev/shm").is_dir() {
        let said = Said::of(&Stage::at("sqlite:/dev/shm/leasehold-doctor-test/locks.db"), &[]);
        assert_eq!(said.code, 1);
        said.says(
            "sqlite.memory-filesystem",
            "a reboot takes the fence counters away",
            "put the file on a disk",
        );
    }
    let memory = Said::of(&Stage::at("memory:"), &[]);
    assert_eq!(memory.code, 1);
    memory.says("memory.private", "no other process sees", "sqlite:PATH");
}
