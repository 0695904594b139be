//! `doctor` against badly configured real servers, and files in bad places.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::fixture::{Fixture, eventually, exit_code, stderr_of, stdout_of};
use crate::schema::parse_valid;
use leasehold_redis::testkit::RedisServer;
use serde_json::Value;

fn redis(args: &[&str]) -> RedisServer {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(RedisServer::start_with(args))
        .expect("redis-server must be installed")
}

const DURABLE_REDIS_ARGS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The parsed report of `doctor` about a store.
struct DoctorReport {
    code: i32,
    json: Value,
    all: String,
}

impl DoctorReport {
    fn run(fixture: &Fixture, more: &[&str]) -> Self {
        let mut args = vec!["doctor", "-o", "json"];
        args.extend(more);
        let output = fixture.run(&args);
        let all = format!("{}{}", stdout_of(&output), stderr_of(&output));
        assert!(exit_code(&output) < 2, "{all}");
        Self { code: exit_code(&output), json: parse_valid("doctor", &stdout_of(&output)), all }
    }

    fn codes(&self, severity: &str) -> Vec<&str> {
        let findings = self.json["findings"].as_array().unwrap();
        let these = findings.iter().filter(|finding| finding["severity"] == severity);
        these.map(|finding| finding["code"].as_str().unwrap()).collect()
    }

    /// Asserts that the finding with this code contains this text and this advice.
    fn assert_finding(&self, code: &str, what: &str, advice: &str) {
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
    let output =
        Command::new("redis-cli").args(["-p", &server.port().to_string()]).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_good_server_is_clean_and_nothing_is_left_in_it() {
    let server = redis(&DURABLE_REDIS_ARGS);
    let fixture = Fixture::with_store(server.url());
    let message = DoctorReport::run(&fixture, &[]);
    assert_eq!((message.code, &message.json["clean"]), (0, &true.into()), "{}", message.all);
    assert_eq!(message.json["findings"], serde_json::json!([]), "{}", message.all);
    assert_eq!(message.json["promise"], "durable");
    assert!(message.json["round_trip_us"].as_u64().unwrap() > 0);
    // The trial's lock is gone; tombstones and the fence counter may stay for a while.
    assert!(!cli(&server, &["KEYS", "*"]).lines().any(|key| key.starts_with("lock:")));
    let text = fixture.run(&["doctor"]);
    assert!(stdout_of(&text).ends_with("nothing found\n"), "{}", stdout_of(&text));
}

#[test]
fn eviction_and_missing_persistence_are_named_and_the_class_is_refused() {
    let server = redis(&["--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru"]);
    let fixture = Fixture::with_store(server.url());
    let message = DoctorReport::run(&fixture, &[]);
    assert_eq!((message.code, &message.json["clean"]), (1, &false.into()));
    message.assert_finding("redis.eviction", "first to go", "maxmemory-policy noeviction");
    message.assert_finding("redis.persistence", "a restart or crash of the server forgets", "appendonly yes");
    assert_eq!(message.json["promise"], "volatile");
    // An accepted finding does not affect the exit code but is still shown.
    let accepted =
        DoctorReport::run(&fixture, &["--accept", "redis.eviction", "--accept", "redis.persistence"]);
    assert_eq!((accepted.code, accepted.codes("breaks").len()), (0, 2));
    // `doctor` and `run` both refuse a class that demands more durability, with the reason.
    fixture.write("leasehold.toml", "[class.books]\nttl = \"60s\"\nrequires = \"durable\"\n");
    let message =
        DoctorReport::run(&fixture, &["--accept", "redis.eviction", "--accept", "redis.persistence"]);
    assert_eq!(message.code, 1);
    message.assert_finding(
        "class.requires",
        "class books is refused: it requires durable and the store promises only volatile",
        "requires",
    );
    message.assert_finding("class.requires", "appendonly is off", "fix");
    let run = fixture.run(&["run", "--class", "books", "demo", "true"]);
    assert_eq!(exit_code(&run), 125);
}

#[test]
fn asynchronous_replicas_and_impossible_wait_settings() {
    let primary = redis(&DURABLE_REDIS_ARGS);
    let port = primary.port().to_string();
    let replica = redis(&["--replicaof", "127.0.0.1", &port]);
    eventually("the replica", || cli(&primary, &["INFO", "replication"]).contains("state=online"));
    let fixture = Fixture::with_store(primary.url());
    let message = DoctorReport::run(&fixture, &[]);
    assert_eq!(message.code, 1);
    message.assert_finding("redis.async-replicas", "a fail-over can forget", "wait_replicas=1");
    let waits = DoctorReport::run(&Fixture::with_store(format!("{}?wait_replicas=1", primary.url())), &[]);
    assert_eq!((waits.code, waits.codes("breaks").len()), (0, 0), "{}", waits.all);
    let too_many = DoctorReport::run(&Fixture::with_store(format!("{}?wait_replicas=2", primary.url())), &[]);
    assert_eq!(too_many.code, 1);
    too_many.assert_finding("redis.wait-replicas", "no lock can be granted", "lower wait_replicas");
    let message = DoctorReport::run(&Fixture::with_store(replica.url()), &[]);
    assert_eq!(message.code, 1);
    message.assert_finding(
        "redis.replica",
        &format!("a replica of 127.0.0.1:{port}"),
        "connect to the primary",
    );
}

#[test]
fn a_server_with_a_wrong_clock() {
    let server = redis(&DURABLE_REDIS_ARGS);
    let fixture = Fixture::with_store(server.url());
    // The test shifts the client's clock instead of the server's: the difference is the same.
    let run = |shift: &str| {
        let output = Command::new("faketime")
            .args([
                "-f",
                shift,
                env!("CARGO_BIN_EXE_leasehold"),
                "--store",
                fixture.store(),
                "doctor",
                "-o",
                "json",
            ])
            .env("HOME", fixture.path(""))
            .env("DONT_FAKE_MONOTONIC", "1")
            .current_dir(fixture.path(""))
            .output()
            .expect("faketime must be installed");
        (exit_code(&output), parse_valid("doctor", &stdout_of(&output)))
    };
    for (shift, way) in [("-90s", "90.0s ahead of"), ("+90s", "90.0s behind")] {
        let (code, json) = run(shift);
        let finding = &json["findings"][0];
        assert_eq!((code, finding["code"].as_str()), (1, Some("redis.clock")), "{json:#}");
        assert!(finding["what"].as_str().unwrap().contains(&way[..3]), "{finding}");
        assert!(finding["advice"].as_str().unwrap().contains("chrony"), "{finding}");
    }
}

#[test]
fn missing_rights_are_named() {
    let server = redis(&DURABLE_REDIS_ARGS);
    let page = include_str!("../../../../docs/stores/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER locks ")).unwrap();
    let password = server.dir().join("password");
    std::fs::write(&password, "hunter2").unwrap();
    std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    let user = |without: &[&str]| {
        let line = line.replace(">PASSWORD", ">hunter2");
        let words: Vec<_> = line.split(' ').filter(|word| !without.contains(word)).collect();
        cli(&server, &["ACL", "DELUSER", "locks"]);
        assert_eq!(cli(&server, &words).trim(), "OK");
        let url = server.url().replace("redis://", "redis://locks@");
        let message = DoctorReport::run(
            &Fixture::with_store(format!("{url}?password_file={}", password.display())),
            &[],
        );
        assert!(!message.all.contains("hunter2"));
        message
    };
    let good = user(&[]);
    assert_eq!((good.code, good.codes("breaks").len()), (0, 0), "{}", good.all);
    let blind = user(&["+info"]);
    assert_eq!(blind.code, 1);
    blind.assert_finding("redis.permission", "may not run INFO", "+info");
    let timeless = user(&["+time"]);
    assert_eq!(timeless.code, 1);
    timeless.assert_finding("redis.permission", "may not run TIME", "+time");
    for (right, cannot) in [("+pttl", "wait for a lock"), ("+incr", "acquire a lock")] {
        let unable = user(&[right]);
        assert_eq!(unable.code, 1, "{}", unable.all);
        unable.assert_finding("store.permission", &format!("this user may not {cannot}"), "ACL line");
    }
    let queueless = user(&["+zadd"]);
    assert_eq!(queueless.code, 0, "{}", queueless.all);
    queueless.assert_finding("store.queue", "served in no order", "ACL line");
    let unlisted = user(&["+scan"]);
    assert_eq!(unlisted.code, 0, "{}", unlisted.all);
    unlisted.assert_finding("store.permission", "may not list locks", "+scan");
    // The user does not exist.
    cli(&server, &["ACL", "DELUSER", "locks"]);
    let url = server.url().replace("redis://", "redis://locks@");
    let message =
        DoctorReport::run(&Fixture::with_store(format!("{url}?password_file={}", password.display())), &[]);
    assert_eq!(message.code, 1);
    message.assert_finding("redis.access", "refuses us", "password_file=");
    // A server that requires a password from every client.
    cli(&server, &["CONFIG", "SET", "requirepass", "x"]);
    let message = DoctorReport::run(&Fixture::with_store(server.url()), &[]);
    assert_eq!(message.code, 1, "{}", message.all);
}

#[test]
fn a_crowded_server() {
    let server = redis(&[&DURABLE_REDIS_ARGS[..], &["--maxclients", "12"]].concat());
    let crowd: Vec<_> =
        (0..9).map(|_| std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap()).collect();
    let message = DoctorReport::run(&Fixture::with_store(server.url()), &["--look-only"]);
    message.assert_finding("redis.clients", "turned away", "maxclients");
    drop(crowd);
}

#[test]
fn a_store_that_cannot_be_examined_is_an_error() {
    for store in ["redis://127.0.0.1:1", "mysql://h", "sqlite:"] {
        let output = Fixture::with_store(store).run(&["doctor"]);
        assert_eq!((exit_code(&output), stdout_of(&output).as_str()), (2, ""), "{}", stderr_of(&output));
        assert!(stderr_of(&output).lines().count() <= 3, "{}", stderr_of(&output));
    }
}

/// Removes findings that depend on the machine of the test.
fn without_machine_findings<'a>(codes: &[&'a str]) -> Vec<&'a str> {
    let machine = ["sqlite.container-layer", "sqlite.memory-filesystem"];
    codes.iter().copied().filter(|code| !machine.contains(code)).collect()
}

#[test]
fn files_in_good_and_bad_places() {
    let fixture = Fixture::sqlite();
    let missing = DoctorReport::run(&fixture, &[]);
    missing.assert_finding("sqlite.missing", "is not there yet", "leasehold store init");
    assert!(!fixture.path("locks.db").exists(), "a look makes nothing");
    assert_eq!(exit_code(&fixture.run(&["store", "init"])), 0);
    let good = DoctorReport::run(&fixture, &[]);
    assert_eq!(without_machine_findings(&good.codes("breaks")), Vec::<&str>::new(), "{}", good.all);
    assert_eq!(good.json["promise"], "durable");

    std::fs::set_permissions(fixture.path("locks.db"), PermissionsExt::from_mode(0o666)).unwrap();
    let open = DoctorReport::run(&fixture, &[]);
    assert_eq!(open.code, 1);
    open.assert_finding("sqlite.permission", "anyone can end anyone's lock", "chmod o-w");
    std::fs::set_permissions(fixture.path("locks.db"), PermissionsExt::from_mode(0o600)).unwrap();
    let db = rusqlite::Connection::open(fixture.path("locks.db")).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    drop(db);
    DoctorReport::run(&fixture, &["--look-only"]).assert_finding(
        "sqlite.journal",
        "not wal",
        "PRAGMA journal_mode = WAL",
    );

    let other = rusqlite::Connection::open(fixture.path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(other);
    let foreign = DoctorReport::run(
        &Fixture::with_store(format!("sqlite:{}", fixture.path("other.db").display())),
        &[],
    );
    assert_eq!(foreign.code, 1);
    foreign.assert_finding("sqlite.foreign", "another program's database", "file of its own");

    if std::path::Path::new("/dev/shm").is_dir() {
        let message =
            DoctorReport::run(&Fixture::with_store("sqlite:/dev/shm/leasehold-doctor-test/locks.db"), &[]);
        assert_eq!(message.code, 1);
        message.assert_finding(
            "sqlite.memory-filesystem",
            "a reboot takes the fence counters away",
            "put the file on a disk",
        );
    }
    let memory = DoctorReport::run(&Fixture::with_store("memory:"), &[]);
    assert_eq!(memory.code, 1);
    memory.assert_finding("memory.private", "no other process sees", "sqlite:PATH");
}
