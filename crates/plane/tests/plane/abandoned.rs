//! An owner that lost its hold writes, publishes and acknowledges nothing afterwards. One test for each
//! writer, each publisher and each acknowledgement.
//!
//! The process is stopped in the middle and wakes up long after its lease has expired. Its next action
//! must not happen; the new owner does the work.

// A failed set-up is a failed test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixture::{Fixture, PAST_ANY_LEASE, ReplicaParts, handler_job, pull_job};
use async_trait::async_trait;
use leasehold_core::Hold;
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::loops::{LoopKind, LoopRunner};
use leasehold_plane::scheduler::ClaimRequest;
use leasehold_plane::store::{Message, PlaneStore, Queue};
use leasehold_plane::work::{Executors, Handler, Publisher};
use leasehold_plane::workflow::StartRunRequest;
use leasehold_plane::{Job, JobSpec, JobState, PlaneError};
use serde_json::{Value, json};

/// Work that takes no time.
struct InstantHandler(Result<Value, String>);

#[async_trait]
impl Handler for InstantHandler {
    async fn run(&self, _hold: &Hold, _job: &Job) -> Result<Value, String> {
        self.0.clone()
    }
}

/// Work during which the whole process is stopped past its lease.
struct StoppedProcessHandler(Result<Value, String>);

#[async_trait]
impl Handler for StoppedProcessHandler {
    async fn run(&self, _hold: &Hold, _job: &Job) -> Result<Value, String> {
        tokio::time::advance(PAST_ANY_LEASE).await;
        self.0.clone()
    }
}

#[derive(Debug, Default, Clone)]
struct CountingPublisher(Arc<AtomicUsize>);

#[async_trait]
impl Publisher for CountingPublisher {
    async fn publish(&self, _hold: &Hold, _job: &Job) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn instant_executors() -> Executors {
    Executors::default().handler("work", InstantHandler(Ok(json!(1))))
}

/// Asserts that the replica woke up and changed nothing.
fn assert_no_changes_after_sleep(parts: &ReplicaParts) {
    assert!(parts.store.slept(), "the test did not get to where it sleeps: {:?}", parts.store.log());
    assert_eq!(parts.store.changes(), Vec::<String>::new(), "{:?}", parts.store.log());
}

/// Submits a job, stops the process after this call of its first delivery, and checks for changes.
async fn stop_after_call(call: &str, works: Executors, spec: JobSpec) -> (Fixture, ReplicaParts) {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", works);
    parts.plane.submit(spec).await.unwrap();
    parts.store.sleep_after(call, PAST_ANY_LEASE);
    parts.deliver_due().await;
    assert_no_changes_after_sleep(&parts);
    (fixture, parts)
}

/// Asserts that another replica finishes the abandoned job, once.
async fn assert_done_by_another(fixture: &Fixture, job: &str) {
    let other = fixture.replica_parts("other", instant_executors());
    let replica = other.replica(instant_executors());
    fixture.until(&other, job, JobState::Succeeded).await;
    let ends = other.plane.job_history(job).await.unwrap();
    let ends = ends.iter().filter(|event| event.body.contains("\"to\":\"SUCCEEDED\"")).count();
    assert_eq!(ends, 1);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn does_not_write_scheduled() {
    // The second read of the job is the one under the lock; the cancel request is read after it.
    let (fixture, parts) = stop_after_call("read signal", instant_executors(), handler_job("a")).await;
    assert_eq!(parts.plane.job("a").await.unwrap().state, JobState::Pending);
    assert_done_by_another(&fixture, "a").await;
}

/// The hold is checked before each try of a write, not only before the first.
#[tokio::test(start_paused = true)]
async fn does_not_repeat_an_unanswered_write() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    parts.plane.submit(handler_job("j")).await.unwrap();
    let locks = parts.plane.locks().class("scheduler");
    let hold = locks.acquire("job:j").await.unwrap().held().unwrap();
    let job = parts.plane.job("j").await.unwrap();
    parts.store.lose_responses(1);
    parts.store.sleep_after("write job SCHEDULED", PAST_ANY_LEASE);
    let out = parts.plane.writer().apply(&hold, &job, job.schedule()).await;
    assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    assert_no_changes_after_sleep(&parts);
}

/// The writer itself refuses, without help from its caller.
#[tokio::test(start_paused = true)]
async fn the_writer_itself_does_not_acknowledge_or_publish() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    parts.plane.submit(handler_job("j")).await.unwrap();
    let locks = parts.plane.locks().class("scheduler");
    let hold = locks.acquire("job:j").await.unwrap().held().unwrap();
    let visible = parts.plane.settings().visibility_timeout;
    let taken = parts.store.receive(Queue::Jobs, 1, visible).await.unwrap();
    parts.store.sleep_after("read job", PAST_ANY_LEASE);
    parts.plane.job("j").await.unwrap();
    let writer = parts.plane.writer();
    let acked = writer.ack(&hold, &taken[0]).await;
    assert!(matches!(acked, Err(PlaneError::Lost(_))), "{acked:?}");
    let message = Message {
        queue: Queue::Jobs,
        id: "m".into(),
        document_id: "j".into(),
        body: "{}".into(),
        due_in: PAST_ANY_LEASE,
    };
    let sent = writer.publish(&hold, &message).await;
    assert!(matches!(sent, Err(PlaneError::Lost(_))), "{sent:?}");
    assert_no_changes_after_sleep(&parts);
}

#[tokio::test(start_paused = true)]
async fn does_not_write_dispatched() {
    let (fixture, parts) =
        stop_after_call("write job SCHEDULED", instant_executors(), handler_job("a")).await;
    assert_eq!(parts.plane.job("a").await.unwrap().state, JobState::Scheduled);
    assert_done_by_another(&fixture, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_publish() {
    let published = CountingPublisher::default();
    let works = Executors::default().publisher(Arc::new(published.clone()));
    let (_bed, parts) = stop_after_call("write job DISPATCHED", works, pull_job("a")).await;
    assert_eq!(parts.plane.job("a").await.unwrap().state, JobState::Dispatched);
    assert_eq!(published.0.load(Ordering::SeqCst), 0, "the hand-over was published by an abandoned owner");
}

#[tokio::test(start_paused = true)]
async fn does_not_write_running() {
    let (fixture, _hand) =
        stop_after_call("write job DISPATCHED", instant_executors(), handler_job("a")).await;
    assert_done_by_another(&fixture, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_acknowledge() {
    let (fixture, _hand) = stop_after_call("write job RUNNING", instant_executors(), handler_job("a")).await;
    assert_done_by_another(&fixture, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_acknowledge_a_hand_over() {
    let fixture = Fixture::new();
    let gate = JobSpec { id: Some("a".into()), ..JobSpec::new(leasehold_plane::Work::Gate) };
    let parts = fixture.replica_parts("sleeper", instant_executors());
    parts.plane.submit(gate).await.unwrap();
    let snapshot = parts.plane.job("a").await.unwrap().snapshot();
    let verdict = DecisionRequest { by: "ann".into(), reason: "fine".into(), snapshot };
    parts.plane.approve("a", &verdict).await.unwrap();
    parts.store.sleep_after("write job SUCCEEDED", PAST_ANY_LEASE);
    parts.deliver_due().await;
    assert_no_changes_after_sleep(&parts);
}

#[tokio::test(start_paused = true)]
async fn does_not_write_that_it_succeeded() {
    let fixture = Fixture::new();
    let parts = fixture
        .replica_parts("sleeper", Executors::default().handler("work", StoppedProcessHandler(Ok(json!(1)))));
    parts.plane.submit(handler_job("a")).await.unwrap();
    parts.deliver_due().await;
    assert!(!parts.store.log().iter().any(|call| call == "write job SUCCEEDED"), "{:?}", parts.store.log());
    assert!(parts.counters.total("abandoned_work_total", "") > 0.0);
    assert_done_by_another(&fixture, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_write_that_it_failed() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts(
        "sleeper",
        Executors::default().handler("work", StoppedProcessHandler(Err("no".into()))),
    );
    parts.plane.submit(handler_job("a")).await.unwrap();
    parts.deliver_due().await;
    let wrote = |state: &str| parts.store.log().iter().any(|call| *call == format!("write job {state}"));
    assert!(wrote("RUNNING") && !wrote("RETRYING") && !wrote("FAILED"), "{:?}", parts.store.log());
    assert_done_by_another(&fixture, "a").await;
}

#[tokio::test(start_paused = true)]
async fn does_not_cancel() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    parts.plane.submit(handler_job("a")).await.unwrap();
    // The first read finds the lock's class, the second is under the lock.
    let cancel = async {
        parts.store.sleep_after("read job", PAST_ANY_LEASE);
        parts.plane.cancel("a", "not wanted").await
    };
    // A stop after the first read is harmless: the lock is acquired after it.
    assert!(cancel.await.is_ok());
    parts.plane.submit(handler_job("b")).await.unwrap();
    let hold = parts.plane.locks().class("scheduler").acquire("job:b").await.unwrap().held().unwrap();
    let job = parts.plane.job("b").await.unwrap();
    tokio::time::advance(PAST_ANY_LEASE).await;
    let out = parts.plane.writer().apply(&hold, &job, job.cancel("late")).await;
    assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    assert_eq!(parts.plane.job("b").await.unwrap().state, JobState::Pending);
}

#[tokio::test(start_paused = true)]
async fn does_not_decide() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    let spec = JobSpec { requires_approval: true, ..handler_job("a") };
    parts.plane.submit(spec).await.unwrap();
    let snapshot = parts.plane.job("a").await.unwrap().snapshot();
    let verdict = DecisionRequest { by: "ann".into(), reason: "fine".into(), snapshot };
    for decide in ["approve", "reject", "repair"] {
        parts.store.sleep_after("read job", PAST_ANY_LEASE);
        let out = match decide {
            "approve" => parts.plane.approve("a", &verdict).await,
            "reject" => parts.plane.reject("a", &verdict).await,
            _ => parts.plane.repair("a", json!({}), &verdict).await,
        };
        assert!(matches!(out, Err(PlaneError::Lost(_))), "{decide}: {out:?}");
        assert_no_changes_after_sleep(&parts);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_claim_heartbeat_or_report() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    parts.plane.submit(pull_job("a")).await.unwrap();
    parts.deliver_due().await;
    parts.store.sleep_after("read signal", PAST_ANY_LEASE);
    assert!(matches!(parts.scheduler.claim(&ClaimRequest::new("work", "w")).await, Err(PlaneError::Lost(_))));
    assert_no_changes_after_sleep(&parts);
    let claim = parts.scheduler.claim(&ClaimRequest::new("work", "w")).await.unwrap().unwrap().claim;
    let hold = parts.plane.locks().class("scheduler").acquire("job:a").await.unwrap().held().unwrap();
    let job = parts.plane.job("a").await.unwrap();
    tokio::time::advance(PAST_ANY_LEASE).await;
    for change in [job.heartbeat(PAST_ANY_LEASE), job.succeed(json!(1))] {
        let out = parts.plane.writer().apply(&hold, &job, change).await;
        assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    }
    drop(hold);
    assert!(parts.scheduler.report(&claim, Ok(json!(1))).await.is_ok());
}

const CRITICAL_WORKFLOW: &str =
    "name = \"w\"\nclass = \"workflow-critical\"\n[[step]]\nid = \"s\"\nhandler = \"work\"\n";

#[tokio::test(start_paused = true)]
async fn does_not_advance_a_run() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    let workflow = leasehold_plane::workflow::parse("w.toml", CRITICAL_WORKFLOW).unwrap();
    parts.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    parts.plane.start_run(start).await.unwrap();
    let hold = parts.plane.locks().class("workflow-critical").acquire("run:r").await.unwrap().held().unwrap();
    parts.store.sleep_after("read run", PAST_ANY_LEASE);
    let out = parts.engine.advance(&hold, "r", &json!({"verb": "start"})).await;
    assert!(matches!(out, Err(PlaneError::Lost(_))), "{out:?}");
    assert_no_changes_after_sleep(&parts);
}

#[tokio::test(start_paused = true)]
async fn does_not_acknowledge_for_a_run() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    let workflow = leasehold_plane::workflow::parse("w.toml", CRITICAL_WORKFLOW).unwrap();
    parts.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    parts.plane.start_run(start).await.unwrap();
    parts.store.sleep_after("write run RUNNING", PAST_ANY_LEASE);
    parts.deliver_due().await;
    assert_no_changes_after_sleep(&parts);
}

/// Asserts that a loop which slept past its lease after its query changes and sends nothing.
async fn loop_does_nothing_after(
    which: LoopKind,
    call: &str,
    prepare: impl AsyncFnOnce(&Fixture, &ReplicaParts),
) {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("sleeper", instant_executors());
    prepare(&fixture, &parts).await;
    let mut ticker = LoopRunner::new(which, parts.scheduler.clone());
    parts.store.sleep_after(call, PAST_ANY_LEASE);
    assert!(!ticker.run_once().await, "it does not tick any more");
    assert_no_changes_after_sleep(&parts);
}

#[tokio::test(start_paused = true)]
async fn reconciler_does_not_repair() {
    loop_does_nothing_after(LoopKind::Reconciler, "list job", async |fixture, parts| {
        let late = JobSpec { deadline: Some(leasehold_plane::Span(PAST_ANY_LEASE)), ..handler_job("a") };
        parts.plane.submit(late).await.unwrap();
        fixture.pass(PAST_ANY_LEASE * 2).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replayer_does_not_publish() {
    loop_does_nothing_after(LoopKind::Replayer, "list job", async |fixture, parts| {
        parts.plane.submit(handler_job("a")).await.unwrap();
        fixture.pass(PAST_ANY_LEASE).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn run_loops_do_not_publish() {
    for which in [LoopKind::RunReconciler, LoopKind::DelayPoller] {
        loop_does_nothing_after(which, "list run", async |fixture, parts| {
            let text = "name = \"w\"\n[[step]]\nid = \"s\"\ndelay = \"1s\"\n";
            let workflow = leasehold_plane::workflow::parse("w.toml", text).unwrap();
            parts.plane.apply_workflow(&workflow).await.unwrap();
            parts
                .plane
                .start_run(StartRunRequest { workflow: "w".into(), ..StartRunRequest::default() })
                .await
                .unwrap();
            parts.deliver_due().await;
            fixture.pass(PAST_ANY_LEASE).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn clean_up_does_not_purge() {
    loop_does_nothing_after(LoopKind::DeadLetters, "purge job", async |_, _| {}).await;
}
