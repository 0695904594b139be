//! `leasehold drill` from the command line: exit codes, files, and no leftovers, however it ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

// Only a failing test waits this long.
const DRILL_TIMEOUT: Duration = Duration::from_secs(60);

fn leasehold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env_remove("LEASEHOLD_STORE").env_remove("LEASEHOLD_POLICIES");
    command
}

fn run_leasehold(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = leasehold(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

#[allow(clippy::disallowed_methods, reason = "a real process is waited for, with a bound")]
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = BootClock.now() + DRILL_TIMEOUT;
    while !so() {
        assert!(BootClock.now() < end, "waited for {what}, in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The child processes of a process, from /proc.
fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name in brackets may contain any character; the parent is the second word after it.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent == Some(of) {
            found.push(pid);
        }
    }
    found
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The process has ended, or is a zombie that its parent has not reaped yet.
fn has_ended(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z'))
}

/// Starts a drill and waits until it has started at least this many processes. Returns all of them.
fn start_drill(args: &[&str], folder: &Path, workers: usize) -> (Child, Vec<u32>) {
    let child =
        leasehold(args).env("TMPDIR", folder).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pids = Vec::new();
    eventually("the drill's processes", || {
        pids = children(child.id());
        pids.len() >= workers
    });
    (child, pids)
}

#[test]
fn a_drill_on_sqlite_is_clean_and_its_history_can_be_judged_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (html, kept) = (at("drills.html"), at("kept"));
    let (code, out, err) = run_leasehold(&[
        "drill",
        "run",
        "release-fails",
        "--on",
        "sqlite",
        "--html",
        &html,
        "--history",
        &kept,
        "-o",
        "json",
    ]);
    assert_eq!(code, 0, "{out}{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["drills"][0]["verdict"], "clean");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && page.contains("class=\"held\""), "the timeline is drawn");
    assert!(!page.contains("<script") && !page.contains("http"), "the page needs nothing from elsewhere");
    let (code, out, err) = run_leasehold(&["drill", "report", &format!("{kept}/release-fails-sqlite.jsonl")]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_history_with_a_stale_write_is_a_violation_and_no_history_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.jsonl");
    let row = |place: u32, writer: &str, fence: u32| {
        format!(
            r#"{{"at":{place},"who":"target","what":"applied","place":{place},"name":"job:1","writer":"{writer}","write":1,"fence":"{fence}"}}"#
        )
    };
    std::fs::write(&path, format!("{}\n{}\n", row(1, "a", 8), row(2, "<b>", 7))).unwrap();
    let html = folder.path().join("bad.html").display().to_string();
    let (code, out, _) = run_leasehold(&["drill", "report", &path.display().to_string(), "--html", &html]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("I3"), "{out}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "names are text, not markup");
    std::fs::write(&path, "hello\n").unwrap();
    let (code, _, err) = run_leasehold(&["drill", "report", &path.display().to_string()]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn an_impossible_drill_is_an_error() {
    let (code, _, err) = run_leasehold(&["drill", "run", "no-such-drill"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("drill list"), "{err}");
    let (code, _, err) = run_leasehold(&["drill", "run", "--no-such-flag"]);
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = run_leasehold(&["drill", "run", "eviction", "--on", "sqlite"]);
    assert_eq!(code, 2, "{err}");
}

/// A user's store is drilled only if it carries the drill mark.
#[test]
fn a_store_that_is_not_marked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    assert_eq!(run_leasehold(&["--store", &url, "run", "x", "--", "true"]).0, 0);
    let (code, _, err) = run_leasehold(&["--store", &url, "drill", "run", "rolling-restart"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("not marked as drillable") && err.contains("CREATE TABLE"), "{err}");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("CREATE TABLE \"leasehold:drillable\" (why TEXT)").unwrap();
    let (code, out, err) = run_leasehold(&["--store", &url, "drill", "run", "rolling-restart"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(run_leasehold(&["--store", &url, "list", "-o", "name"]).1, "", "no lease is left");
}

#[test]
fn sizes_are_checked_before_anything_is_started() {
    for outage in ["2s", "11m", "30"] {
        let (code, _, err) = run_leasehold(&["drill", "run", "store-outage", "--outage", outage]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("--outage"), "{err}");
    }
    let (code, _, err) = run_leasehold(&["drill", "run", "contention-storm", "--waiters", "5"]);
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = run_leasehold(&["drill", "soak", "--every", "10ms"]);
    assert_eq!(code, 2, "{err}");
    // These drills do not run on a user's store at all.
    for verb in ["faults", "soak", "plane", "hostile-clients"] {
        let (code, _, err) = run_leasehold(&["--store", "redis://127.0.0.1:1", "drill", verb]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("throw-away"), "{err}");
    }
}

/// An unwritable report path is refused before the drill starts, so that no verdict is lost.
#[test]
fn the_report_path_is_checked_before_the_drill_starts() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("missing").join("drills.html");
    let html = html.display().to_string();
    let (code, out, err) =
        run_leasehold(&["drill", "run", "rolling-restart", "--on", "sqlite", "--html", &html]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(err.contains("cannot write") && err.contains("missing"), "{err}");
    assert!(!err.contains("[1/1]") && out.is_empty(), "no drill was begun: {err}{out}");
}

/// Without a fault there is no takeover, and the takeover guarantee must not count as verified.
#[test]
fn unobserved_takeovers_do_not_count_as_in_time() {
    let (code, out, err) =
        run_leasehold(&["drill", "plane", "--jobs", "2", "--runs", "0", "--faults", "none"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("not seen takeovers"), "{out}");
    assert!(!out.contains("kept     takeovers"), "{out}");
}

/// The history of a control run is marked as such.
#[test]
fn the_history_of_a_control_run_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let row = |place: u32, fence: u32| {
        format!(
            r#"{{"at":{place},"who":"target","what":"applied","place":{place},"name":"job:1","writer":"w{place}","write":1,"fence":"{fence}"}}"#
        )
    };
    let told = |name: &str, first: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{first}{}\n{}\n", row(1, 8), row(2, 7))).unwrap();
        let (code, _, err) = run_leasehold(&["drill", "report", &path.display().to_string()]);
        assert_eq!(code, 1, "{err}");
        err.contains("control run")
    };
    assert!(told("unfenced-control-sqlite.jsonl", ""), "by its name");
    let mark = leasehold_drill::scenario::CONTROL_RUN_NOTE;
    let fault = format!(r#"{{"at":1,"who":"director","what":"fault","fault":"{mark}"}}"#);
    assert!(told("renamed.jsonl", &format!("{fault}\n")), "by what it says");
    assert!(!told("other.jsonl", ""));
}

#[test]
fn short_drills_print_their_seeds_and_totals() {
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().display().to_string();
    let (code, out, err) = run_leasehold(&[
        "drill", "faults", "--count", "4", "--seed", "7", "--lanes", "2", "--keep", &keep, "-o", "json",
    ]);
    assert_eq!(code, 0, "{out}{err}");
    let sums: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(sums["drills"], 4);
    assert_eq!(sums["violations"], serde_json::json!({}));
    assert!(sums["grants"].as_u64().unwrap() >= 4, "{out}");
    assert_eq!(sums["first_seed"], "7");
}

#[test]
fn a_short_soak_is_judged_window_by_window() {
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().display().to_string();
    let (code, out, err) = run_leasehold(&[
        "drill", "soak", "--for", "12s", "--every", "2s", "--window", "5s", "--on", "sqlite", "--keep",
        &keep, "-o", "json",
    ]);
    assert_eq!(code, 0, "{out}{err}");
    let sums: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(sums["windows"].as_u64().unwrap() >= 2, "{out}");
    assert!(sums["records"].as_u64().unwrap() > 100, "{out}");
}

/// Each way to end a drill, on stores that the drill started itself.
#[test]
fn ctrl_c_and_term_leave_no_process_server_or_folder() {
    for (words, signal) in [
        (&["run", "flood-while-renewing", "--on", "redis"][..], Signal::SIGINT),
        (&["run", "flood-while-renewing", "--on", "redis"][..], Signal::SIGTERM),
        (&["faults", "--count", "50", "--lanes", "4"][..], Signal::SIGINT),
        (&["soak", "--for", "1m", "--on", "redis"][..], Signal::SIGTERM),
        (&["plane", "--on", "redis"][..], Signal::SIGINT),
    ] {
        interrupted(words, signal);
    }
}

fn interrupted(words: &[&str], signal: Signal) {
    let folder = tempfile::tempdir().unwrap();
    let words: Vec<_> = ["drill"].iter().chain(words).copied().collect();
    // At least two workers, and the server if the store has one.
    let (mut drill, pids) = start_drill(&words, folder.path(), 2);
    kill(Pid::from_raw(drill.id().cast_signed()), signal).unwrap();
    assert_eq!(drill.wait().unwrap().code(), Some(2), "{words:?}");
    for pid in pids {
        assert!(has_ended(pid), "process {pid} is still there, in state {:?}", state(pid));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "its folders are gone");
}

/// A user's store is left unchanged: no lease, no queue entry, no tombstone of a cancelled acquire.
#[test]
fn an_interrupted_drill_leaves_nothing_in_a_given_store() {
    let server = redis();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let keys = || server_keys(&url);
    assert!(cli(&url, &["SET", "leasehold:drillable", "yes"]).contains("OK"));
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let folder = tempfile::tempdir().unwrap();
        let (mut drill, pids) = start_drill(
            &["--store", &url, "drill", "run", "contention-storm", "--waiters", "60"],
            folder.path(),
            3,
        );
        // A waiter is queued, so there is something that could be left behind.
        eventually("a queue", || keys().iter().any(|key| key.contains("queue")));
        kill(Pid::from_raw(drill.id().cast_signed()), signal).unwrap();
        assert_eq!(drill.wait().unwrap().code(), Some(2));
        for pid in pids {
            assert!(has_ended(pid), "process {pid} is still there");
        }
        let left = keys();
        let stay = |key: &String| key == "leasehold:drillable" || key.starts_with("lh1:fence:");
        assert!(left.iter().all(stay), "{left:?}");
    }
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    assert_eq!(run_leasehold(&["--store", &url, "run", "x", "--", "true"]).0, 0);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE \"leasehold:drillable\" (why TEXT)").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut drill, _) = start_drill(
        &["--store", &url, "drill", "run", "contention-storm", "--waiters", "60"],
        folder.path(),
        3,
    );
    let count = |table: &str| -> i64 {
        let statement = format!("SELECT count(*) FROM {table} WHERE name LIKE 'drill:%'");
        db.query_row(&statement, [], |row| row.get(0)).unwrap_or(0)
    };
    eventually("a queue", || count("waiters") > 0);
    kill(Pid::from_raw(drill.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(drill.wait().unwrap().code(), Some(2));
    for table in ["leases", "waiters", "tombstones"] {
        assert_eq!(count(table), 0, "{table}");
    }
}

fn redis() -> leasehold_redis::testkit::RedisServer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(leasehold_redis::testkit::RedisServer::start()).unwrap()
}

fn cli(url: &str, words: &[&str]) -> String {
    let ran = Command::new("redis-cli").args(["-u", url]).args(words).output();
    String::from_utf8(ran.unwrap().stdout).unwrap()
}

fn server_keys(url: &str) -> Vec<String> {
    cli(url, &["KEYS", "*"]).lines().map(str::to_owned).collect()
}

/// A killed director cannot clean up; its server ends nevertheless.
#[test]
fn a_killed_director_leaves_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let (mut drill, pids) =
        start_drill(&["drill", "run", "flood-while-renewing", "--on", "redis"], folder.path(), 3);
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    assert!(pids.iter().any(|pid| name(pid).contains("redis-server")), "a server is among them");
    drill.kill().unwrap();
    drill.wait().unwrap();
    eventually("everybody's end", || pids.iter().all(|pid| has_ended(*pid)));
}

/// A killed director cannot clean up; its workers end nevertheless, also a stopped one.
#[test]
fn a_killed_director_leaves_no_worker() {
    // This process adopts the orphans. Otherwise the kernel itself would send HUP and CONT to a stopped one,
    // and the test would prove nothing.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut drill, pids) =
        start_drill(&["drill", "run", "pause-and-delay", "--on", "sqlite"], folder.path(), 2);
    eventually("a stopped worker", || pids.iter().any(|pid| state(*pid) == Some('T')));
    drill.kill().unwrap();
    drill.wait().unwrap();
    eventually("every worker's end", || pids.iter().all(|pid| has_ended(*pid)));
}

#[test]
fn the_proxy_prints_its_address_and_ends_with_ctrl_c() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = server.local_addr().unwrap().to_string();
    let mut proxy = leasehold(&["drill", "proxy", "--upstream", &upstream, "latency latency=10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let way = std::net::TcpStream::connect(line.trim()).unwrap();
    let (_through, _) = server.accept().unwrap();
    drop(way);
    kill(Pid::from_raw(proxy.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(proxy.wait().unwrap().code(), Some(0));
    assert!(std::net::TcpStream::connect(line.trim()).is_err(), "nothing listens any more");
}

/// A small attack on a real daemon costs the other tenant no renewal.
#[test]
fn hostile_clients_cost_another_tenant_nothing() {
    let (code, out, err) = run_leasehold(&["drill", "hostile-clients", "--scale", "0.01"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains(" 0 missed") && out.contains("every promise was kept"), "{out}");
}
