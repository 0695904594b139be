//! An owner that lost its hold writes, publishes and acknowledges nothing afterwards: one test for each writer, each
//! publisher and each acknowledgement.
//!
//! The process is stopped in the middle and wakes up when its lease is long over. What it was about to do next must
//! not happen; whoever owns the work by then does it.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

mod bed;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bed::{Bed, Hand, LONG, handled, pulled};
use leasehold_core::Hold;
use leasehold_plane::approval::Verdict;
use leasehold_plane::loops::{Ticker, Which};
use leasehold_plane::store::{Mail, PlaneStore, Queue};
use leasehold_plane::work::{Handler, Publisher, Works};
use leasehold_plane::workflow::StartRun;
use leasehold_plane::{Job, JobSpec, JobState, PlaneError};
use serde_json::{Value, json};

/// Work that takes no time, or during which the process is stopped for long.
struct Steady(Result<Value, String>);

#[async_trait]
impl Handler for Steady {
    async fn run(&self, _hold: &Hold, _job: &Job) -> Result<Value, String> {
        self.0.clone()
    }
}

struct Sleepy(Result<Value, String>);

#[async_trait]
impl Handler for Sleepy {
    async fn run(&self, _hold: &Hold, _job: &Job) -> Result<Value, String> {
        tokio::time::advance(LONG).await;
        self.0.clone()
    }
}

#[derive(Debug, Default, Clone)]
struct Counted(Arc<AtomicUsize>);

#[async_trait]
impl Publisher for Counted {
    async fn publish(&self, _hold: &Hold, _job: &Job) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn steady() -> Works {
    Works::default().handler("work", Steady(Ok(json!(1))))
}

/// It woke up, and changed nothing.
fn nothing_after(hand: &Hand) {
    assert!(
        hand.store.slept(),
        "the test did not get to where it sleeps: {:?}",
        hand.store.log()
    );
    assert_eq!(
        hand.store.changes(),
        Vec::<String>::new(),
        "{:?}",
        hand.store.log()
    );
}

/// Submits, sleeps after this call of the first turn, and looks.
async fn stopped_after(call: &str, works: Works, spec: JobSpec) -> (Bed, Hand) {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", works);
    hand.plane.submit(spec).await.unwrap();
    hand.store.sleep_after(call, LONG);
    hand.deliver_due().await;
    nothing_after(&hand);
    (bed, hand)
}

/// What the sleeper left is done by another one, once.
async fn done_by_another(bed: &Bed, job: &str) {
    let other = bed.hand("other", steady());
    let replica = other.replica(steady());
    bed.until(&other, job, JobState::Succeeded).await;
    let ends = other.plane.job_history(job).await.unwrap();
    let ends = ends
        .iter()
        .filter(|event| event.body.contains("\"to\":\"SUCCEEDED\""))
        .count();
    assert_eq!(ends, 1);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn does_not_write_scheduled() {
    // The second look at the job is the one under the lock; the wish is looked for after it.
    let (bed, hand) = stopped_after("read signal", steady(), handled("a")).await;
    assert_eq!(hand.plane.job("a").await.unwrap().state, JobState::Pending);
    done_by_another(&bed, "a").await;
}

/// The hold is compared with the clock before each try of a write, not only before the first.
#[tokio::test(start_paused = true)]
async fn does_not_repeat_an_unanswered_write() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    hand.plane.submit(handled("j")).await.unwrap();
    let locks = hand.plane.locks().class("scheduler");
    let hold = locks.acquire("job:j").await.unwrap().held().unwrap();
    let job = hand.plane.job("j").await.unwrap();
    hand.store.lose_answers(1);
    hand.store.sleep_after("write job SCHEDULED", LONG);
    let out = hand.plane.ledger().apply(&hold, &job, job.schedule()).await;
    assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    nothing_after(&hand);
}

/// The ledger itself refuses, whoever calls it and however: nothing else has to notice first.
#[tokio::test(start_paused = true)]
async fn does_not_acknowledge_or_publish_by_the_ledger_itself() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    hand.plane.submit(handled("j")).await.unwrap();
    let locks = hand.plane.locks().class("scheduler");
    let hold = locks.acquire("job:j").await.unwrap().held().unwrap();
    let visible = hand.plane.settings().visible;
    let taken = hand.store.take(Queue::Jobs, 1, visible).await.unwrap();
    hand.store.sleep_after("read job", LONG);
    hand.plane.job("j").await.unwrap();
    let ledger = hand.plane.ledger();
    let acked = ledger.ack(&hold, &taken[0]).await;
    assert!(matches!(acked, Err(PlaneError::Lost(_))), "{acked:?}");
    let mail = Mail {
        queue: Queue::Jobs,
        id: "m".into(),
        to: "j".into(),
        body: "{}".into(),
        due_in: LONG,
    };
    let sent = ledger.publish(&hold, &mail).await;
    assert!(matches!(sent, Err(PlaneError::Lost(_))), "{sent:?}");
    nothing_after(&hand);
}

#[tokio::test(start_paused = true)]
async fn does_not_write_dispatched() {
    let (bed, hand) = stopped_after("write job SCHEDULED", steady(), handled("a")).await;
    assert_eq!(hand.plane.job("a").await.unwrap().state, JobState::Scheduled);
    done_by_another(&bed, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_publish() {
    let published = Counted::default();
    let works = Works::default().publisher(Arc::new(published.clone()));
    let (_bed, hand) = stopped_after("write job DISPATCHED", works, pulled("a")).await;
    assert_eq!(hand.plane.job("a").await.unwrap().state, JobState::Dispatched);
    assert_eq!(
        published.0.load(Ordering::SeqCst),
        0,
        "the hand-over was published by an abandoned owner"
    );
}

#[tokio::test(start_paused = true)]
async fn does_not_write_running() {
    let (bed, _hand) = stopped_after("write job DISPATCHED", steady(), handled("a")).await;
    done_by_another(&bed, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_acknowledge() {
    let (bed, _hand) = stopped_after("write job RUNNING", steady(), handled("a")).await;
    done_by_another(&bed, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_acknowledge_a_hand_over() {
    let bed = Bed::new();
    let gate = JobSpec {
        id: Some("a".into()),
        ..JobSpec::new(leasehold_plane::Work::Gate)
    };
    let hand = bed.hand("sleeper", steady());
    hand.plane.submit(gate).await.unwrap();
    let verdict = Verdict {
        by: "ann".into(),
        reason: "fine".into(),
        snapshot: None,
    };
    hand.plane.approve("a", &verdict).await.unwrap();
    hand.store.sleep_after("write job SUCCEEDED", LONG);
    hand.deliver_due().await;
    nothing_after(&hand);
}

#[tokio::test(start_paused = true)]
async fn does_not_write_that_it_succeeded() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", Works::default().handler("work", Sleepy(Ok(json!(1)))));
    hand.plane.submit(handled("a")).await.unwrap();
    hand.deliver_due().await;
    assert!(
        !hand.store.log().iter().any(|call| call == "write job SUCCEEDED"),
        "{:?}",
        hand.store.log()
    );
    assert!(hand.counters.total("abandoned_work_total", "") > 0.0);
    done_by_another(&bed, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_write_that_it_failed() {
    let bed = Bed::new();
    let hand = bed.hand(
        "sleeper",
        Works::default().handler("work", Sleepy(Err("no".into()))),
    );
    hand.plane.submit(handled("a")).await.unwrap();
    hand.deliver_due().await;
    let wrote = |state: &str| {
        hand.store
            .log()
            .iter()
            .any(|call| *call == format!("write job {state}"))
    };
    assert!(
        wrote("RUNNING") && !wrote("RETRYING") && !wrote("FAILED"),
        "{:?}",
        hand.store.log()
    );
    done_by_another(&bed, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_cancel() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    hand.plane.submit(handled("a")).await.unwrap();
    // The first look finds the lock's class, the second is under the lock: sleep after that one.
    let cancel = async {
        hand.store.sleep_after("read job", LONG);
        hand.plane.cancel("a", "not wanted").await
    };
    // Waking up after the first look is harmless: the lock is taken after it.
    assert!(cancel.await.is_ok());
    hand.plane.submit(handled("b")).await.unwrap();
    let hold = hand
        .plane
        .locks()
        .class("scheduler")
        .acquire("job:b")
        .await
        .unwrap()
        .held()
        .unwrap();
    let job = hand.plane.job("b").await.unwrap();
    tokio::time::advance(LONG).await;
    let out = hand.plane.ledger().apply(&hold, &job, job.cancel("late")).await;
    assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    assert_eq!(hand.plane.job("b").await.unwrap().state, JobState::Pending);
}

#[tokio::test(start_paused = true)]
async fn does_not_decide() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    let spec = JobSpec {
        requires_approval: true,
        ..handled("a")
    };
    hand.plane.submit(spec).await.unwrap();
    let verdict = Verdict {
        by: "ann".into(),
        reason: "fine".into(),
        snapshot: None,
    };
    for decide in ["approve", "reject", "repair"] {
        hand.store.sleep_after("read job", LONG);
        let out = match decide {
            "approve" => hand.plane.approve("a", &verdict).await,
            "reject" => hand.plane.reject("a", &verdict).await,
            _ => hand.plane.repair("a", json!({}), &verdict).await,
        };
        assert!(matches!(out, Err(PlaneError::Lost(_))), "{decide}: {out:?}");
        nothing_after(&hand);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_claim_beat_or_report() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    hand.plane.submit(pulled("a")).await.unwrap();
    hand.deliver_due().await;
    hand.store.sleep_after("read signal", LONG);
    assert!(matches!(
        hand.scheduler.claim("work", "w").await,
        Err(PlaneError::Lost(_))
    ));
    nothing_after(&hand);
    let claim = hand.scheduler.claim("work", "w").await.unwrap().unwrap().claim;
    let hold = hand
        .plane
        .locks()
        .class("scheduler")
        .acquire("job:a")
        .await
        .unwrap()
        .held()
        .unwrap();
    let job = hand.plane.job("a").await.unwrap();
    tokio::time::advance(LONG).await;
    for change in [job.heartbeat(LONG), job.succeed(json!(1))] {
        let out = hand.plane.ledger().apply(&hold, &job, change).await;
        assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    }
    drop(hold);
    assert!(hand.scheduler.report(&claim, Ok(json!(1))).await.is_ok());
}

const CRITICAL: &str =
    "name = \"w\"\nclass = \"workflow-critical\"\n[[step]]\nid = \"s\"\nhandler = \"work\"\n";

#[tokio::test(start_paused = true)]
async fn does_not_advance_a_run() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    let workflow = leasehold_plane::workflow::parse("w.toml", CRITICAL).unwrap();
    hand.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRun {
        workflow: "w".into(),
        id: Some("r".into()),
        ..StartRun::default()
    };
    hand.plane.start(start).await.unwrap();
    let hold = hand
        .plane
        .locks()
        .class("workflow-critical")
        .acquire("run:r")
        .await
        .unwrap()
        .held()
        .unwrap();
    hand.store.sleep_after("read run", LONG);
    let out = hand.engine.advance(&hold, "r", &json!({"verb": "start"})).await;
    assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    nothing_after(&hand);
}

#[tokio::test(start_paused = true)]
async fn does_not_acknowledge_for_a_run() {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    let workflow = leasehold_plane::workflow::parse("w.toml", CRITICAL).unwrap();
    hand.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRun {
        workflow: "w".into(),
        id: Some("r".into()),
        ..StartRun::default()
    };
    hand.plane.start(start).await.unwrap();
    hand.store.sleep_after("write run RUNNING", LONG);
    hand.deliver_due().await;
    nothing_after(&hand);
}

/// A loop that slept through its lease after looking mends and sends nothing.
async fn loop_does_nothing_after(which: Which, call: &str, prepare: impl AsyncFnOnce(&Bed, &Hand)) {
    let bed = Bed::new();
    let hand = bed.hand("sleeper", steady());
    prepare(&bed, &hand).await;
    let mut ticker = Ticker::new(which, hand.scheduler.clone());
    hand.store.sleep_after(call, LONG);
    assert!(!ticker.turn().await, "it does not tick any more");
    nothing_after(&hand);
}

#[tokio::test(start_paused = true)]
async fn reconciler_does_not_mend() {
    loop_does_nothing_after(Which::Reconciler, "list job", async |bed, hand| {
        let late = JobSpec {
            deadline: Some(leasehold_plane::Span(LONG)),
            ..handled("a")
        };
        hand.plane.submit(late).await.unwrap();
        bed.pass(LONG * 2).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replayer_does_not_publish() {
    loop_does_nothing_after(Which::Replayer, "list job", async |bed, hand| {
        hand.plane.submit(handled("a")).await.unwrap();
        bed.pass(LONG).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn run_loops_do_not_publish() {
    for which in [Which::RunReconciler, Which::DelayPoller] {
        loop_does_nothing_after(which, "list run", async |bed, hand| {
            let text = "name = \"w\"\n[[step]]\nid = \"s\"\ndelay = \"1s\"\n";
            let workflow = leasehold_plane::workflow::parse("w.toml", text).unwrap();
            hand.plane.apply_workflow(&workflow).await.unwrap();
            hand.plane
                .start(StartRun {
                    workflow: "w".into(),
                    ..StartRun::default()
                })
                .await
                .unwrap();
            hand.deliver_due().await;
            bed.pass(LONG).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn clean_up_does_not_forget() {
    loop_does_nothing_after(Which::DeadLetters, "purge job", async |_, _| {}).await;
}
