//! The replayer sends the message of waiting jobs again, and no other message.

// A failed set-up is a failed test.

use std::time::Duration;

use crate::fixture::{Fixture, PAST_ANY_LEASE, ReplicaParts, handler_job};
use async_trait::async_trait;
use leasehold_core::Hold;
use leasehold_plane::loops::{LoopKind, LoopRunner};
use leasehold_plane::store::{Disposition, Message, PlaneStore, Queue};
use leasehold_plane::work::{Executors, Handler};
use leasehold_plane::workflow::StartRunRequest;
use leasehold_plane::{Job, JobSpec, JobState, Span};
use serde_json::{Value, json};

/// Fails at the first attempt only.
#[derive(Debug)]
struct FailsFirstAttempt;

#[async_trait]
impl Handler for FailsFirstAttempt {
    async fn run(&self, _hold: &Hold, job: &Job) -> Result<Value, String> {
        match job.attempt {
            1 => Err("not yet".into()),
            _ => Ok(json!(job.attempt)),
        }
    }
}

fn executors() -> Executors {
    Executors::default().handler("work", FailsFirstAttempt)
}

/// A job whose first attempt fails, with this backoff.
fn failing_job(backoff: Duration) -> JobSpec {
    JobSpec { attempts: 3, backoff: Span(backoff), ..handler_job("j") }
}

/// Removes all due messages, as if the store had lost them. Returns their ids.
async fn lose_due_messages(fixture: &Fixture) -> Vec<String> {
    let mut lost = Vec::new();
    for message in fixture.memory.receive(Queue::Jobs, 100, PAST_ANY_LEASE).await.unwrap() {
        assert!(fixture.memory.settle(&message, Disposition::Ack).await.unwrap());
        lost.push(message.id);
    }
    lost
}

/// One tick of the replayer, in a replica that has not ticked before.
async fn tick(parts: &ReplicaParts) {
    assert!(LoopRunner::new(LoopKind::Replayer, parts.scheduler.clone()).run_once().await);
}

fn replay_age(parts: &ReplicaParts) -> Duration {
    parts.plane.settings().replay_age
}

#[tokio::test(start_paused = true)]
async fn a_delayed_message_is_not_sent_twice() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    parts.plane.submit(handler_job("j")).await.unwrap();
    fixture.pass(replay_age(&parts) * 2).await;
    tick(&parts).await;
    assert_eq!(lose_due_messages(&fixture).await, ["go:j:0"], "the mail that it was submitted with");
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_is_sent_again_once_at_replay_age() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    parts.plane.submit(failing_job(Duration::from_secs(10))).await.unwrap();
    assert_eq!(lose_due_messages(&fixture).await.len(), 1);
    fixture.pass(replay_age(&parts) - Duration::from_secs(1)).await;
    tick(&parts).await;
    assert!(lose_due_messages(&fixture).await.is_empty(), "not yet");
    fixture.pass(Duration::from_secs(3)).await;
    tick(&parts).await;
    fixture.pass(Duration::from_secs(5)).await;
    tick(&fixture.replica_parts("b", executors())).await;
    assert_eq!(parts.deliver_due().await, 1, "however often it is looked for");
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Retrying);
}

#[tokio::test(start_paused = true)]
async fn a_lost_retry_message_is_sent_again_after_the_backoff() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    parts.plane.submit(failing_job(PAST_ANY_LEASE)).await.unwrap();
    parts.deliver_due().await;
    // The retry's message is due after the backoff and lost then; the replayer waits for a grace time.
    fixture.pass(PAST_ANY_LEASE * 2).await;
    assert_eq!(lose_due_messages(&fixture).await.len(), 1);
    tick(&parts).await;
    assert_eq!(parts.deliver_due().await, 1);
    let job = parts.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stale_message_does_not_cut_the_backoff_short() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    parts.plane.submit(failing_job(PAST_ANY_LEASE)).await.unwrap();
    parts.deliver_due().await;
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Retrying);
    for id in ["go:j:0", "go:j:1"] {
        let stale = Message {
            queue: Queue::Jobs,
            id: id.into(),
            document_id: "j".into(),
            body: json!({"verb": "go"}).to_string(),
            due_in: Duration::ZERO,
        };
        assert!(fixture.memory.send(&stale).await.unwrap());
    }
    assert_eq!(parts.deliver_due().await, 2);
    let job = parts.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Retrying, 1));
    // The stale messages are gone, and the retry's own message arrives after the backoff.
    assert_eq!(parts.deliver_due().await, 0);
    fixture.pass(PAST_ANY_LEASE * 2).await;
    assert_eq!(parts.deliver_due().await, 1);
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_of_a_workflow_step_is_sent_again() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    let text = "name = \"w\"\n[[step]]\nid = \"s\"\nexec = [\"true\"]\n";
    let workflow = leasehold_plane::workflow::parse("w.toml", text).unwrap();
    parts.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    parts.plane.start_run(start).await.unwrap();
    parts.deliver_due().await;
    let lost = lose_due_messages(&fixture).await;
    assert_eq!(lost, ["go:r.s.1:0"]);
    fixture.pass(replay_age(&parts) + Duration::from_secs(1)).await;
    tick(&parts).await;
    assert_eq!(lose_due_messages(&fixture).await, lost);
}
