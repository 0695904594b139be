//! Approvals: exactly one decision under concurrency, and a definite response to each caller.

// A failed set-up is a failed test.

use std::collections::BTreeMap;

use crate::fixture::{Fixture, handler_job};
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::work::Executors;
use leasehold_plane::{Job, JobSpec, JobState};
use serde_json::json;

/// A decision about the job `id` as it was submitted.
fn decision_on(id: &str, who: &str) -> DecisionRequest {
    let snapshot = Job::new(id.into(), job_with_approval(id), None).snapshot();
    DecisionRequest { by: who.into(), reason: "looked at it".into(), snapshot }
}

fn job_with_approval(id: &str) -> JobSpec {
    JobSpec { requires_approval: true, ..handler_job(id) }
}

#[tokio::test(start_paused = true)]
async fn ten_concurrent_approvals_count_once() {
    let fixture = Fixture::new();
    let all_parts: Vec<_> = (0..10)
        .map(|number| fixture.replica_parts(&format!("gateway-{number}"), Executors::default()))
        .collect();
    all_parts[0].plane.submit(job_with_approval("j")).await.unwrap();
    let mut answers = BTreeMap::new();
    let all: Vec<_> = all_parts
        .iter()
        .enumerate()
        .map(|(number, parts)| {
            let plane = parts.plane.clone();
            tokio::spawn(
                async move { plane.approve("j", &decision_on("j", &format!("person-{number}"))).await },
            )
        })
        .collect();
    for answer in all {
        let word = match answer.await.unwrap() {
            Ok(job) => {
                assert_eq!(job.state, JobState::Pending);
                "approved"
            }
            Err(error) => {
                assert_eq!(error.code().status(), 409, "{error}");
                error.code().as_str()
            }
        };
        *answers.entry(word).or_insert(0) += 1;
    }
    assert_eq!(answers, BTreeMap::from([("already_approved", 9), ("approved", 1)]));
    let history = all_parts[0].plane.job_history("j").await.unwrap();
    assert_eq!(history.len(), 2, "submitted and approved, once");
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_code() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let code = |id: &'static str, verdict: DecisionRequest| {
        let plane = parts.plane.clone();
        async move { plane.approve(id, &verdict).await.unwrap_err().code().as_str() }
    };
    assert_eq!(code("nobody", decision_on("nobody", "ann")).await, "not_found");
    parts.plane.submit(handler_job("open")).await.unwrap();
    assert_eq!(code("open", decision_on("open", "ann")).await, "not_actionable");
    parts.plane.cancel("open", "no").await.unwrap();
    assert_eq!(code("open", decision_on("open", "ann")).await, "terminal");
    parts.plane.submit(job_with_approval("j")).await.unwrap();
    assert_eq!(code("j", decision_on("j", " ")).await, "invalid");
    let seen = parts.plane.job("j").await.unwrap().snapshot();
    let repaired = parts.plane.repair("j", json!({"region": "eu"}), &decision_on("j", "bob")).await.unwrap();
    assert_ne!(repaired.snapshot(), seen);
    assert_eq!(
        code("j", DecisionRequest { snapshot: seen, ..decision_on("j", "ann") }).await,
        "stale_snapshot"
    );
    let verdict = DecisionRequest { snapshot: repaired.snapshot(), ..decision_on("j", "ann") };
    parts.plane.approve("j", &verdict).await.unwrap();
    assert_eq!(code("j", decision_on("j", "cid")).await, "already_approved");
    parts.plane.submit(job_with_approval("k")).await.unwrap();
    let denied = parts.plane.reject("k", &decision_on("k", "ann")).await.unwrap();
    assert_eq!(denied.state, JobState::Denied);
    assert_eq!(code("k", decision_on("k", "cid")).await, "already_rejected");
}

/// The decision is known, so a repetition must not get a retry error while the scheduler holds the lock.
#[tokio::test(start_paused = true)]
async fn a_repeated_approval_of_a_running_job_is_answered_at_once() {
    let fixture = Fixture::new();
    let (parts, other) = (
        fixture.replica_parts("a", Executors::default()),
        fixture.replica_parts("scheduler", Executors::default()),
    );
    parts.plane.submit(job_with_approval("j")).await.unwrap();
    parts.plane.approve("j", &decision_on("j", "ann")).await.unwrap();
    let locks = other.plane.locks().class("scheduler");
    let _held = locks.acquire("job:j").await.unwrap().held().unwrap();
    let again = parts.plane.approve("j", &decision_on("j", "bob")).await.unwrap_err();
    assert_eq!(again.code().as_str(), "already_approved");
}

#[tokio::test(start_paused = true)]
async fn approvals_and_the_scheduler_exclude_each_other() {
    let fixture = Fixture::new();
    let (parts, other) = (
        fixture.replica_parts("a", Executors::default()),
        fixture.replica_parts("scheduler", Executors::default()),
    );
    parts.plane.submit(job_with_approval("j")).await.unwrap();
    let held = other.plane.locks().class("scheduler").acquire("job:j").await.unwrap();
    let busy = parts.plane.approve("j", &decision_on("j", "ann")).await.unwrap_err();
    assert_eq!((busy.code().as_str(), busy.code().status()), ("approval_retryable_lock", 409));
    assert!(busy.retry_after().is_some());
    drop(held);
    fixture.chaos.all().down(true);
    let down = parts.plane.approve("j", &decision_on("j", "ann")).await.unwrap_err();
    assert_eq!(down.code().status(), 503);
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::ApprovalRequired);
}
