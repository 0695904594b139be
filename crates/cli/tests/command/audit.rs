//! `leasehold audit verify` on the log of a real daemon: finding 15 of the security review.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use crate::fixture::{Fixture, RunningProcess, eventually, exit_code, stderr_of, stdout_of};
use crate::schema::parse_valid;

const LOG: &str = "state/audit.jsonl";

/// Starts a daemon with the state folder `state`, and returns the URL with an administrator's token.
fn start_daemon(fixture: &Fixture) -> (RunningProcess, String) {
    if !fixture.path("tokens.toml").exists() {
        let made = fixture.run(&["token", "new", "ops", "--grant", "admin:*", "--file", "tokens.toml"]);
        assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
        fixture.write("ops.token", &stdout_of(&made));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(fixture.path("ops.token"), mode).unwrap();
    }
    let args = ["serve", "--listen", "127.0.0.1:0", "--state", "state", "--tokens", "tokens.toml"];
    let daemon = fixture.start(&args);
    let mut url = None;
    eventually("the daemon", || {
        let message = daemon.stderr();
        url = message.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
        url.is_some()
    });
    let url = format!("{}?token_file={}", url.unwrap(), fixture.path("ops.token").display());
    (daemon, url)
}

fn break_lease(fixture: &Fixture, url: &str, reason: &str) {
    // A name of its own: a broken lease stays closed for its lock delay.
    let name = format!("job:{reason}");
    let acquired = fixture.run(&["--store", url, "acquire", &name, "--token-file", "t"]);
    assert_eq!(exit_code(&acquired), 0, "{}", stderr_of(&acquired));
    let broken =
        fixture.run(&["--store", url, "break", &name, "--reason", reason, "--force", "--wait", "1ms"]);
    assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
    std::fs::remove_file(fixture.path("t")).unwrap();
}

/// Returns the exit code and the output of `audit verify`.
fn verify(fixture: &Fixture, more: &[&str]) -> (i32, String) {
    let args: Vec<_> = ["audit", "verify", "state"].iter().chain(more).copied().collect();
    let output = fixture.run(&args);
    (exit_code(&output), stdout_of(&output) + &stderr_of(&output))
}

/// The reproductions of the review: the last line removed, the actor changed, all lines sealed anew;
/// and a daemon that is killed leaves a log that verifies.
#[test]
fn finding_15_a_log_changed_after_a_kill_is_found() {
    let fixture = Fixture::sqlite();
    let (mut daemon, url) = start_daemon(&fixture);
    break_lease(&fixture, &url, "first");
    break_lease(&fixture, &url, "second");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait_exit_code();
    let (code, text) = verify(&fixture, &[]);
    assert!(code == 0 && text.contains("nothing was changed"), "{text}");
    assert_eq!(exit_code(&fixture.run(&["audit", "verify", LOG])), 0);
    let log = fixture.read(LOG);
    for line in log.lines() {
        parse_valid("audit-log", line);
    }
    assert!(log.contains("\"actor\":\"ops\""), "{log}");
    let last = log.trim_end().rfind('\n').unwrap();
    fixture.write(LOG, &log[..=last]);
    let (code, text) = verify(&fixture, &[]);
    assert!(code == 1 && text.contains("at its end are missing"), "{text}");
    fixture.write(LOG, &log.replace("\"actor\":\"ops\"", "\"actor\":\"eve\""));
    let (code, text) = verify(&fixture, &[]);
    assert!(code == 1 && text.contains("was changed"), "{text}");
    // A log made with another key, put in place of this one.
    let other = Fixture::sqlite();
    let (mut daemon, url) = start_daemon(&other);
    break_lease(&other, &url, "innocent");
    break_lease(&other, &url, "harmless");
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.wait_exit_code(), 0);
    fixture.write(LOG, &other.read(LOG));
    let (code, text) = verify(&fixture, &[]);
    assert!(code == 1 && text.contains("another key"), "{text}");
    // Even with that log's own key: the daemon's database remembers another end.
    let key = other.path("state/audit.key");
    let (code, text) = verify(&fixture, &["--key", key.to_str().unwrap()]);
    assert!(code == 1, "{text}");
    // The daemon starts all the same, says so, and keeps the evidence.
    let (daemon, url) = start_daemon(&fixture);
    daemon.wait_for_stderr("audit log");
    break_lease(&fixture, &url, "third");
    assert!(fixture.path("state/audit.jsonl.damaged-1").exists());
    let (code, text) = verify(&fixture, &[]);
    assert!(code == 1 && text.contains("kept as audit.jsonl.damaged-1"), "{text}");
}

/// What is needed and missing is an error, not a verdict.
#[test]
fn finding_15_without_the_key_or_the_head_nothing_is_verified() {
    let fixture = Fixture::sqlite();
    let (mut daemon, url) = start_daemon(&fixture);
    break_lease(&fixture, &url, "first");
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.wait_exit_code(), 0);
    std::fs::rename(fixture.path("state/audit.key"), fixture.path("kept.key")).unwrap();
    let (code, text) = verify(&fixture, &[]);
    assert!(code == 2 && text.contains("audit.key"), "{text}");
    assert_eq!(verify(&fixture, &["--key", "kept.key"]).0, 0);
    std::fs::remove_file(fixture.path("state/daemon.db")).unwrap();
    let (code, text) = verify(&fixture, &["--key", "kept.key"]);
    assert!(code == 2 && text.contains("daemon.db"), "{text}");
}
