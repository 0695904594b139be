//! The audit log of a running daemon: finding 15 of the security review.

use std::sync::Arc;

use leasehold_server::{AuditError, verify_audit};
use serde_json::{Value, json};

use crate::fixture::{Daemon, DaemonPlan};

fn lines_of(daemon: &Daemon, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(daemon.state().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// An administrator's break is removed from the end of the log: while the daemon runs, after it has
/// stopped, and across its next start, which reports it.
#[tokio::test]
async fn finding_15_a_removed_last_line_is_found_and_the_daemon_still_starts() {
    let mut daemon = Daemon::start().await;
    daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
    daemon.post("/v1/locks/demo/break", json!({"reason": "stuck", "force": true})).await.ok();
    let path = daemon.state().join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().last().unwrap().contains("\"break\""), "{text}");
    let shorter = &text[..=text.trim_end().rfind('\n').unwrap()];
    daemon.stop().await;
    assert!(verify_audit(&daemon.state(), None).is_ok());
    std::fs::write(&path, shorter).unwrap();
    let missing = |verified: Result<_, AuditError>| match verified {
        Err(AuditError::Broken(why)) => why.contains("at its end are missing"),
        _ => false,
    };
    assert!(missing(verify_audit(&daemon.state(), None)));
    let mut plan = DaemonPlan::new();
    plan.config.state_dir = Some(daemon.state());
    plan.folder = Arc::clone(&daemon.folder);
    let again = plan.start().await;
    assert!(missing(verify_audit(&again.state(), None)));
    assert_eq!(lines_of(&again, "audit.jsonl")[0]["damaged_from"], 1);
    let metrics = again.get("/metrics").await;
    assert!(
        metrics.text.contains("leasehold_audit_damaged_segments{store=\"memory\"} 1"),
        "{}",
        metrics.text
    );
    again.post("/v1/locks/demo/acquire", json!({})).await.ok();
}

/// Many refused breaks of one caller write ten lines and one with the count of the others.
#[tokio::test]
async fn finding_15_refusals_of_one_caller_are_bounded_and_counted() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("worker", &["hold:*"]), ("boss", &["admin:*"])]);
    let mut daemon = plan.start().await;
    let post =
        async |token: &str, path: &str, body: Value| daemon.call("POST", path, Some(token), Some(body)).await;
    post(&tokens[0], "/v1/locks/demo/acquire", json!({"ttl_ms": 60_000})).await.ok();
    for _ in 0..40 {
        let refused = post(&tokens[1], "/v1/locks/demo/break", json!({"reason": "mine", "wait_ms": 0})).await;
        assert_eq!(refused.code(), "holder_alive");
    }
    daemon.stop().await;
    let lines = lines_of(&daemon, "audit.jsonl");
    let refusals: Vec<_> = lines.iter().filter(|line| line["action"] == "break-refused").collect();
    assert_eq!(refusals.len(), 10);
    assert!(refusals.iter().all(|line| line["actor"] == "boss"));
    let omitted: Vec<_> = lines.iter().filter(|line| line["action"] == "refusals-omitted").collect();
    assert_eq!(omitted.len(), 1, "{omitted:?}");
    assert_eq!((&omitted[0]["actor"], &omitted[0]["omitted"]), (&json!("boss"), &json!(30)));
    assert!(verify_audit(&daemon.state(), None).is_ok());
}

/// A daemon that writes many segments can be verified while it runs, and keeps as many as it may.
#[tokio::test]
async fn finding_15_a_running_daemon_keeps_a_bounded_number_of_segments() {
    let mut plan = DaemonPlan::new();
    plan.config.audit_segment_bytes = 1024;
    plan.config.max_audit_segments = 4;
    let mut daemon = plan.start().await;
    for _ in 0..40 {
        let mine = daemon.post("/v1/locks/demo/acquire", json!({})).await.ok();
        daemon.post("/v1/locks/demo/release", json!({"token": mine["token"]})).await.ok();
        let verified = verify_audit(&daemon.state(), None);
        assert!(verified.is_ok(), "{verified:?}");
    }
    daemon.stop().await;
    let verified = verify_audit(&daemon.state(), None).unwrap();
    assert!(verified.lines > 80, "{verified:?}");
    assert_eq!(verified.segments, 4);
    let names = std::fs::read_dir(daemon.state()).unwrap().flatten().map(|entry| entry.file_name());
    let segments = names.filter(|name| name.to_string_lossy().ends_with(".jsonl")).count();
    assert_eq!(segments, 4);
}
