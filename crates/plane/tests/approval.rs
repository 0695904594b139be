//! Approvals: one yes, whatever happens at once, and an answer for everybody.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

mod bed;

use std::collections::BTreeMap;

use bed::{Bed, handled};
use leasehold_plane::approval::Verdict;
use leasehold_plane::work::Works;
use leasehold_plane::{JobSpec, JobState};
use serde_json::json;

fn by(who: &str) -> Verdict {
    Verdict {
        by: who.into(),
        reason: "looked at it".into(),
        snapshot: None,
    }
}

fn asked(id: &str) -> JobSpec {
    JobSpec {
        requires_approval: true,
        ..handled(id)
    }
}

#[tokio::test(start_paused = true)]
async fn ten_at_once_are_one_approval() {
    let bed = Bed::new();
    let hands: Vec<_> = (0..10)
        .map(|number| bed.hand(&format!("gateway-{number}"), Works::default()))
        .collect();
    hands[0].plane.submit(asked("j")).await.unwrap();
    let mut answers = BTreeMap::new();
    let all: Vec<_> = hands
        .iter()
        .enumerate()
        .map(|(number, hand)| {
            let plane = hand.plane.clone();
            tokio::spawn(async move { plane.approve("j", &by(&format!("person-{number}"))).await })
        })
        .collect();
    for answer in all {
        let word = match answer.await.unwrap() {
            Ok(job) => {
                assert_eq!(job.state, JobState::Pending);
                "approved"
            }
            Err(error) => {
                assert_eq!(error.status(), 409, "{error}");
                error.code()
            }
        };
        *answers.entry(word).or_insert(0) += 1;
    }
    assert_eq!(
        answers,
        BTreeMap::from([("already_approved", 9), ("approved", 1)])
    );
    let history = hands[0].plane.job_history("j").await.unwrap();
    assert_eq!(history.len(), 2, "submitted and approved, once");
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_code() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    let code = |id: &'static str, verdict: Verdict| {
        let plane = hand.plane.clone();
        async move { plane.approve(id, &verdict).await.unwrap_err().code() }
    };
    assert_eq!(code("nobody", by("ann")).await, "not_found");
    hand.plane.submit(handled("open")).await.unwrap();
    assert_eq!(code("open", by("ann")).await, "not_actionable");
    hand.plane.cancel("open", "no").await.unwrap();
    assert_eq!(code("open", by("ann")).await, "terminal");
    hand.plane.submit(asked("j")).await.unwrap();
    assert_eq!(code("j", by(" ")).await, "invalid");
    let seen = hand.plane.job("j").await.unwrap().snapshot();
    let repaired = hand
        .plane
        .repair("j", json!({"region": "eu"}), &by("bob"))
        .await
        .unwrap();
    assert_ne!(repaired.snapshot(), seen);
    assert_eq!(
        code(
            "j",
            Verdict {
                snapshot: Some(seen),
                ..by("ann")
            }
        )
        .await,
        "stale_snapshot"
    );
    let verdict = Verdict {
        snapshot: Some(repaired.snapshot()),
        ..by("ann")
    };
    hand.plane.approve("j", &verdict).await.unwrap();
    assert_eq!(code("j", by("cid")).await, "already_approved");
    hand.plane.submit(asked("k")).await.unwrap();
    let denied = hand.plane.reject("k", &by("ann")).await.unwrap();
    assert_eq!(denied.state, JobState::Denied);
    assert_eq!(code("k", by("cid")).await, "already_rejected");
}

/// Its answer is known: a repetition must not be told to come again while the scheduler works on the job.
#[tokio::test(start_paused = true)]
async fn said_again_while_the_job_is_worked_on_it_is_answered_at_once() {
    let bed = Bed::new();
    let (hand, other) = (
        bed.hand("a", Works::default()),
        bed.hand("scheduler", Works::default()),
    );
    hand.plane.submit(asked("j")).await.unwrap();
    hand.plane.approve("j", &by("ann")).await.unwrap();
    let locks = other.plane.locks().class("scheduler");
    let _held = locks.acquire("job:j").await.unwrap().held().unwrap();
    let again = hand.plane.approve("j", &by("bob")).await.unwrap_err();
    assert_eq!(again.code(), "already_approved");
}

#[tokio::test(start_paused = true)]
async fn approvals_and_the_scheduler_exclude_each_other() {
    let bed = Bed::new();
    let (hand, other) = (
        bed.hand("a", Works::default()),
        bed.hand("scheduler", Works::default()),
    );
    hand.plane.submit(asked("j")).await.unwrap();
    let held = other
        .plane
        .locks()
        .class("scheduler")
        .acquire("job:j")
        .await
        .unwrap();
    let busy = hand.plane.approve("j", &by("ann")).await.unwrap_err();
    assert_eq!((busy.code(), busy.status()), ("approval_retryable_lock", 409));
    assert!(busy.retry_after().is_some());
    drop(held);
    bed.chaos.all().down(true);
    let down = hand.plane.approve("j", &by("ann")).await.unwrap_err();
    assert_eq!(down.status(), 503);
    assert_eq!(
        hand.plane.job("j").await.unwrap().state,
        JobState::ApprovalRequired
    );
}
