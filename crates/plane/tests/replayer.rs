//! The replayer: what nobody has taken up is submitted again, and nothing else.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

mod bed;

use std::time::Duration;

use async_trait::async_trait;
use bed::{Bed, Hand, LONG, handled};
use leasehold_core::Hold;
use leasehold_plane::loops::{Ticker, Which};
use leasehold_plane::store::{Mail, PlaneStore, Queue, Settle};
use leasehold_plane::work::{Handler, Works};
use leasehold_plane::workflow::StartRun;
use leasehold_plane::{Job, JobSpec, JobState, Span};
use serde_json::{Value, json};

/// Works, except at the first attempt.
#[derive(Debug)]
struct SecondTime;

#[async_trait]
impl Handler for SecondTime {
    async fn run(&self, _hold: &Hold, job: &Job) -> Result<Value, String> {
        match job.attempt {
            1 => Err("not yet".into()),
            _ => Ok(json!(job.attempt)),
        }
    }
}

fn works() -> Works {
    Works::default().handler("work", SecondTime)
}

/// Once fails, and is tried again about so much later.
fn failing(backoff: Duration) -> JobSpec {
    JobSpec {
        attempts: 3,
        backoff: Span(backoff),
        ..handled("j")
    }
}

/// Everything that is due is lost, as if a store had forgotten it. Answers the ids.
async fn lose_mail(bed: &Bed) -> Vec<String> {
    let mut lost = Vec::new();
    for mail in bed.memory.take(Queue::Jobs, 100, LONG).await.unwrap() {
        assert!(bed.memory.settle(&mail, Settle::Ack).await.unwrap());
        lost.push(mail.id);
    }
    lost
}

/// One tick of the replayer, by a replica that has had no other.
async fn tick(hand: &Hand) {
    assert!(Ticker::new(Which::Replayer, hand.scheduler.clone()).turn().await);
}

fn age(hand: &Hand) -> Duration {
    hand.plane.settings().replay_age
}

#[tokio::test(start_paused = true)]
async fn what_is_only_slow_is_not_sent_twice() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    hand.plane.submit(handled("j")).await.unwrap();
    bed.pass(age(&hand) * 2).await;
    tick(&hand).await;
    assert_eq!(
        lose_mail(&bed).await,
        ["go:j:0"],
        "the mail that it was submitted with"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_without_mail_is_submitted_again_when_it_is_old_enough_and_once() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    hand.plane.submit(failing(Duration::from_secs(10))).await.unwrap();
    assert_eq!(lose_mail(&bed).await.len(), 1);
    bed.pass(age(&hand) - Duration::from_secs(1)).await;
    tick(&hand).await;
    assert!(lose_mail(&bed).await.is_empty(), "not yet");
    bed.pass(Duration::from_secs(3)).await;
    tick(&hand).await;
    bed.pass(Duration::from_secs(5)).await;
    tick(&bed.hand("b", works())).await;
    assert_eq!(hand.deliver_due().await, 1, "however often it is looked for");
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Retrying);
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_mail_is_submitted_again_after_its_pause() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    hand.plane.submit(failing(LONG)).await.unwrap();
    hand.deliver_due().await;
    // Its own mail is due after the pause, and lost then; the replayer gives it some time before it steps in.
    bed.pass(LONG * 2).await;
    assert_eq!(lose_mail(&bed).await.len(), 1);
    tick(&hand).await;
    assert_eq!(hand.deliver_due().await, 1);
    let job = hand.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 2));
}

#[tokio::test(start_paused = true)]
async fn mail_of_an_earlier_attempt_does_not_cut_the_pause_short() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    hand.plane.submit(failing(LONG)).await.unwrap();
    hand.deliver_due().await;
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Retrying);
    for id in ["go:j:0", "go:j:1"] {
        let stale = Mail {
            queue: Queue::Jobs,
            id: id.into(),
            to: "j".into(),
            body: json!({"verb": "go"}).to_string(),
            due_in: Duration::ZERO,
        };
        assert!(bed.memory.send(&stale).await.unwrap());
    }
    assert_eq!(hand.deliver_due().await, 2);
    let job = hand.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Retrying, 1));
    // Nothing of it is left, and its own mail comes when the pause is over.
    assert_eq!(hand.deliver_due().await, 0);
    bed.pass(LONG * 2).await;
    assert_eq!(hand.deliver_due().await, 1);
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn the_job_of_a_step_is_submitted_again_like_any_other() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    let text = "name = \"w\"\n[[step]]\nid = \"s\"\nexec = [\"true\"]\n";
    let workflow = leasehold_plane::workflow::parse("w.toml", text).unwrap();
    hand.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRun {
        workflow: "w".into(),
        id: Some("r".into()),
        ..StartRun::default()
    };
    hand.plane.start(start).await.unwrap();
    hand.deliver_due().await;
    let lost = lose_mail(&bed).await;
    assert_eq!(lost, ["go:r.s.1:0"]);
    bed.pass(age(&hand) + Duration::from_secs(1)).await;
    tick(&hand).await;
    assert_eq!(lose_mail(&bed).await, lost);
}
