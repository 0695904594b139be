//! The scheduler's handling of jobs, on virtual time.

// A failed set-up is a failed test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixture::{Fixture, PAST_ANY_LEASE, handler_job, pull_job};
use async_trait::async_trait;
use leasehold_core::Hold;
use leasehold_core::clock::{ClockExt, SharedClock};
use leasehold_plane::job::Outcome;
use leasehold_plane::scheduler::ClaimRequest;
use leasehold_plane::store::{PlaneStore, Queue};
use leasehold_plane::work::{Executors, Handler, Publisher};
use leasehold_plane::{CancelResponse, Job, JobSpec, JobState, PlaneError, Span};
use serde_json::{Value, json};

/// Fails this many times, then succeeds; takes this long each time.
struct FlakyHandler {
    clock: SharedClock,
    takes: Duration,
    failures: AtomicUsize,
}

#[async_trait]
impl Handler for FlakyHandler {
    async fn run(&self, hold: &Hold, job: &Job) -> Result<Value, String> {
        self.clock.sleep(self.takes).await;
        let left = self.failures.load(Ordering::SeqCst);
        if left > 0 {
            self.failures.store(left - 1, Ordering::SeqCst);
            return Err("not yet".into());
        }
        assert!(hold.fence().is_ok(), "work gets a fence to write with");
        Ok(json!({"attempt": job.attempt}))
    }
}

fn executors(fixture: &Fixture, takes: Duration, failures: usize) -> Executors {
    Executors::default().handler(
        "work",
        FlakyHandler { clock: Arc::clone(&fixture.clock), takes, failures: AtomicUsize::new(failures) },
    )
}

fn instant_executors(fixture: &Fixture) -> Executors {
    executors(fixture, Duration::ZERO, 0)
}

#[tokio::test(start_paused = true)]
async fn a_job_succeeds_and_records_its_history() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", instant_executors(&fixture));
    let submitted = parts.plane.submit(handler_job("j")).await.unwrap();
    assert!(!submitted.repeated && submitted.job.state == JobState::Pending);
    assert_eq!(parts.deliver_due().await, 1);
    let job = parts.plane.job("j").await.unwrap();
    assert_eq!(job.state, JobState::Succeeded);
    assert_eq!(job.outcome, Some(Outcome::Done(json!({"attempt": 1}))));
    let states: Vec<_> = parts
        .plane
        .job_history("j")
        .await
        .unwrap()
        .iter()
        .map(|event| serde_json::from_str::<Value>(&event.body).unwrap())
        .collect();
    let to: Vec<_> = states.iter().map(|event| event["to"].as_str().unwrap().to_owned()).collect();
    assert_eq!(to, ["PENDING", "SCHEDULED", "DISPATCHED", "RUNNING", "SUCCEEDED"]);
    // The event of each end carries fence and owner.
    assert!(states[4]["fence"].is_string() && states[4]["by"] == "a", "{}", states[4]);
    assert_eq!(parts.deliver_due().await, 0, "its mail is acknowledged");
}

#[tokio::test(start_paused = true)]
async fn submitted_twice_it_is_one_job() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", instant_executors(&fixture));
    let spec = JobSpec { key: Some("k".into()), id: None, ..handler_job("x") };
    let first = parts.plane.submit(spec.clone()).await.unwrap();
    let again = parts.plane.submit(spec.clone()).await.unwrap();
    assert!(again.repeated && again.job.id == first.job.id);
    parts.deliver_due().await;
    let after = parts.plane.submit(spec).await.unwrap();
    assert_eq!((after.repeated, after.job.state), (true, JobState::Succeeded));
    assert_eq!(parts.deliver_due().await, 0, "a repetition sends no work");
    let other = JobSpec { key: Some("k".into()), id: None, ..pull_job("x") };
    let refused = parts.plane.submit(other).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "different_job");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_write_is_repeated_without_harm() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", instant_executors(&fixture));
    parts.store.lose_responses(1);
    parts.plane.submit(handler_job("j")).await.unwrap();
    for _ in 0..4 {
        parts.store.lose_responses(1);
        parts.deliver_due().await;
    }
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Succeeded);
    assert_eq!(parts.plane.job_history("j").await.unwrap().len(), 5);
    assert_eq!(parts.counters.total("duplicate_terminal_total", ""), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_job_backs_off_and_leaves_a_dead_letter() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors(&fixture, Duration::ZERO, 100));
    let spec = JobSpec { attempts: 4, backoff: Span(Duration::from_secs(10)), ..handler_job("j") };
    parts.plane.submit(spec).await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..3 {
        parts.deliver_due().await;
        assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Retrying);
        let from = fixture.clock.now();
        while parts.plane.job("j").await.unwrap().state == JobState::Retrying {
            fixture.pass(Duration::from_millis(100)).await;
            if parts.deliver_due().await > 0 {
                break;
            }
        }
        waits.push(fixture.clock.now().since(from).as_secs_f64());
        if parts.plane.job("j").await.unwrap().state == JobState::Failed {
            break;
        }
    }
    // 10 s, 20 s, 40 s, each jittered by half.
    for (wait, around) in waits.iter().zip([10.0, 20.0, 40.0]) {
        assert!((around * 0.5..around * 1.5 + 0.2).contains(wait), "{waits:?}");
    }
    let job = parts.plane.job("j").await.unwrap();
    let dead = job.dead.unwrap();
    assert_eq!((job.state, dead.attempts, dead.last_state), (JobState::Failed, 4, JobState::Running));
    assert_eq!(dead.reason, "not yet");
    // It can be replayed, once.
    let replay = parts.plane.replay("j").await.unwrap();
    assert_eq!(replay.job.spec.labels["replay-of"], "j");
    assert!(parts.plane.replay("j").await.unwrap().repeated);
    let alive = parts.plane.replay(&replay.job.id).await.unwrap_err();
    assert_eq!(alive.code().as_str(), "not_dead");
}

#[derive(Debug)]
struct FailingPublisher(AtomicUsize);

#[async_trait]
impl Publisher for FailingPublisher {
    async fn publish(&self, _hold: &Hold, _job: &Job) -> Result<(), String> {
        match self.0.fetch_sub(1, Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err("the bus is down".into()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_hand_over_is_rolled_back_and_tried_again() {
    let fixture = Fixture::new();
    let parts = fixture
        .replica_parts("a", Executors::default().publisher(Arc::new(FailingPublisher(AtomicUsize::new(1)))));
    parts.plane.submit(pull_job("j")).await.unwrap();
    parts.deliver_due().await;
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Scheduled);
    assert_eq!(parts.counters.total("rolled_back_total", ""), 1.0);
    fixture.pass(Duration::from_millis(1600)).await;
    parts.deliver_due().await;
    let job = parts.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Dispatched, 2));
}

#[tokio::test(start_paused = true)]
async fn redelivery_takes_half_a_second_if_busy_and_one_after_errors() {
    let fixture = Fixture::new();
    let (parts, other) = (
        fixture.replica_parts("a", instant_executors(&fixture)),
        fixture.replica_parts("b", instant_executors(&fixture)),
    );
    parts.plane.submit(handler_job("j")).await.unwrap();
    let held = other.plane.locks().class("scheduler").acquire("job:j").await.unwrap();
    parts.deliver_due().await;
    assert_eq!(parts.counters.total("redelivered_total", "busy"), 1.0);
    fixture.pass(Duration::from_millis(200)).await;
    assert_eq!(parts.deliver_due().await, 0);
    drop(held);
    fixture.pass(Duration::from_millis(560)).await;
    assert_eq!(parts.deliver_due().await, 1);
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Succeeded);

    parts.plane.submit(handler_job("k")).await.unwrap();
    fixture.chaos.all().down(true);
    parts.deliver_due().await;
    assert_eq!(parts.counters.total("redelivered_total", "error"), 1.0);
    assert_eq!(parts.plane.job("k").await.unwrap().state, JobState::Pending, "fail-closed: no work");
    fixture.chaos.all().down(false);
    fixture.pass(Duration::from_millis(450)).await;
    assert_eq!(parts.deliver_due().await, 0);
    fixture.pass(Duration::from_secs(30)).await;
    parts.deliver_due().await;
    assert_eq!(parts.plane.job("k").await.unwrap().state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_and_a_timeout_end_a_job() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors(&fixture, Duration::from_secs(50), 0));
    let deadline = JobSpec { deadline: Some(Span(Duration::from_secs(20))), ..handler_job("late") };
    let timeout = JobSpec { timeout: Some(Span(Duration::from_secs(10))), ..handler_job("slow") };
    parts.plane.submit(deadline).await.unwrap();
    parts.plane.submit(timeout).await.unwrap();
    let replica = parts.replica(executors(&fixture, Duration::from_secs(50), 0));
    let from = fixture.clock.now();
    fixture.wait_for_state_within(&parts, "slow", JobState::Timeout, Duration::from_secs(12)).await;
    fixture.wait_for_state_within(&parts, "late", JobState::Timeout, Duration::from_secs(22)).await;
    assert!(fixture.clock.now().since(from) >= Duration::from_secs(19));
    // A job without an owner is ended by the reconciler.
    let never = JobSpec {
        deadline: Some(Span(Duration::from_secs(5))),
        requires_approval: true,
        ..handler_job("unasked")
    };
    parts.plane.submit(never).await.unwrap();
    fixture.wait_for_state_within(&parts, "unasked", JobState::Timeout, Duration::from_secs(7)).await;
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn cancelling_stops_running_work() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    parts.plane.submit(handler_job("waits")).await.unwrap();
    assert!(matches!(parts.plane.cancel("waits", "no").await.unwrap(), CancelResponse::Cancelled(_)));
    assert!(matches!(parts.plane.cancel("waits", "no").await.unwrap(), CancelResponse::AlreadyEnded(_)));
    parts.plane.submit(handler_job("works")).await.unwrap();
    let replica = parts.replica(executors(&fixture, PAST_ANY_LEASE, 0));
    fixture.until(&parts, "works", JobState::Running).await;
    let other = fixture.replica_parts("b", Executors::default());
    assert!(matches!(other.plane.cancel("works", "wrong one").await.unwrap(), CancelResponse::Requested(_)));
    // Within one poll.
    let job = fixture
        .wait_for_state_within(&parts, "works", JobState::Cancelled, Duration::from_millis(1100))
        .await;
    let why = other.plane.job_history(&job.id).await.unwrap().pop().unwrap().body;
    assert!(why.contains("wrong one"), "{why}");
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn resources_are_acquired_all_or_none() {
    let fixture = Fixture::new();
    let (parts, other) = (
        fixture.replica_parts("a", instant_executors(&fixture)),
        fixture.replica_parts("b", instant_executors(&fixture)),
    );
    let held = other.plane.locks().class("scheduler").acquire("res:default:printer").await.unwrap();
    let spec =
        JobSpec { resources: vec!["scanner".into(), "printer".into(), "adapter".into()], ..handler_job("j") };
    parts.plane.submit(spec).await.unwrap();
    parts.deliver_due().await;
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Pending);
    assert_eq!(parts.counters.total("redelivered_total", "resource"), 1.0);
    assert_eq!(parts.plane.locks().pending().await.holds, 0, "what it had got is given back");
    drop(held);
    fixture.pass(Duration::from_secs(1)).await;
    parts.deliver_due().await;
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Succeeded);
    assert_eq!(parts.plane.locks().pending().await.holds, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_owners_job_is_taken_over_within_ttl_and_one_poll() {
    let fixture = Fixture::new();
    let way = fixture.own_fault_injector();
    let victim = fixture.replica_parts_behind(&way, "victim", Executors::default(), Fixture::settings());
    victim.plane.submit(handler_job("j")).await.unwrap();
    // Its process dies at work: the lease is neither renewed nor released.
    let locks = victim.plane.locks().clone();
    let hold = locks.class("scheduler").acquire("job:j").await.unwrap().held().unwrap();
    let job = victim.plane.job("j").await.unwrap();
    let writer = victim.plane.writer();
    let job = writer.apply(&hold, &job, job.schedule()).await.unwrap();
    let owner = leasehold_plane::job::Owner { who: "victim".into(), fence: hold.fence_if_any().unwrap() };
    let job = writer.apply(&hold, &job, job.dispatch(owner.clone())).await.unwrap();
    writer.apply(&hold, &job, job.start(owner, None)).await.unwrap();
    let visible = victim.plane.settings().visibility_timeout;
    for message in victim.store.receive(Queue::Jobs, 10, visible).await.unwrap() {
        assert!(writer.ack(&hold, &message).await.unwrap());
    }
    // It has worked for a while: the takeover time counts from the end of its lease, not from its start.
    fixture.pass(Duration::from_secs(300)).await;
    // Dead: none of its calls reaches the lock store any more.
    way.all().down(true);
    let died = fixture.clock.now();
    let other = fixture.replica_parts("other", Executors::default());
    let replica = other.replica(instant_executors(&fixture));
    let done = fixture.until(&other, "j", JobState::Succeeded).await;
    let took = fixture.clock.now().since(died);
    assert!(took <= Duration::from_secs(60 + 1 + 1), "{took:?}");
    assert_eq!((done.attempt, done.losses, done.failures), (2, 1, 0));
    assert_eq!(other.counters.total("takeover_total", "job"), 1.0);
    let late = other.counters.total("takeover_seconds", "job");
    assert!(late > 0.0 && late <= 1.0, "counted from the lease's end: {late}");
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn pull_workers_claim_heartbeat_and_report() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    assert!(parts.scheduler.claim(&ClaimRequest::new("work", "w1")).await.unwrap().is_none());
    parts.plane.submit(pull_job("j")).await.unwrap();
    parts.deliver_due().await;
    let claimed = parts.scheduler.claim(&ClaimRequest::new("work", "w1")).await.unwrap().unwrap();
    assert_eq!(claimed.job.state, JobState::Running);
    assert!(claimed.claim.fence.is_some());
    assert!(parts.scheduler.claim(&ClaimRequest::new("work", "w2")).await.unwrap().is_none());
    parts.scheduler.heartbeat(&claimed.claim).await.unwrap();
    let reported = parts.scheduler.report(&claimed.claim, Ok(json!(7))).await.unwrap();
    assert_eq!((reported.repeated, reported.job.state), (false, JobState::Succeeded));
    // A repeated report changes nothing and is counted.
    assert!(parts.scheduler.report(&claimed.claim, Ok(json!(8))).await.unwrap().repeated);
    assert_eq!(parts.plane.job("j").await.unwrap().outcome, Some(Outcome::Done(json!(7))));
    assert_eq!(parts.counters.total("duplicate_terminal_total", ""), 1.0);
    assert_eq!(parts.locks.total("duplicate_terminal_total", ""), 1.0);
}

/// A claim that is kept alive for long costs as much as a short one.
#[tokio::test(start_paused = true)]
async fn finding_21_heartbeats_extend_a_claim_and_store_nothing_more() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    parts.plane.submit(pull_job("j")).await.unwrap();
    let replica = parts.replica(Executors::default());
    fixture.until(&parts, "j", JobState::Dispatched).await;
    let claimed = parts.scheduler.claim(&ClaimRequest::new("work", "w")).await.unwrap().unwrap();
    let before = parts.plane.job_history("j").await.unwrap();
    for _ in 0..20 {
        fixture.pass(claimed.heartbeat / 2).await;
        parts.scheduler.heartbeat(&claimed.claim).await.unwrap();
    }
    let job = parts.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.version), (JobState::Running, claimed.job.version));
    assert_eq!(parts.plane.job_history("j").await.unwrap(), before);
    parts.scheduler.report(&claimed.claim, Ok(json!(7))).await.unwrap();
    assert_eq!(parts.plane.job_history("j").await.unwrap().len(), before.len() + 1);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_loses_its_claim() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    parts.plane.submit(pull_job("j")).await.unwrap();
    let replica = parts.replica(Executors::default());
    fixture.until(&parts, "j", JobState::Dispatched).await;
    let first = parts.scheduler.claim(&ClaimRequest::new("work", "w1")).await.unwrap().unwrap();
    // No heartbeat in time: within one more poll another worker can claim the job.
    fixture.pass(first.heartbeat + Duration::from_secs(2)).await;
    fixture.wait_for_state_within(&parts, "j", JobState::Dispatched, Duration::from_secs(2)).await;
    let second = parts.scheduler.claim(&ClaimRequest::new("work", "w2")).await.unwrap().unwrap();
    assert!(second.claim.attempt > first.claim.attempt && second.claim.fence > first.claim.fence);
    for late in [
        parts.scheduler.heartbeat(&first.claim).await.map(drop),
        parts.scheduler.report(&first.claim, Ok(json!(1))).await.map(drop),
    ] {
        assert_eq!(late.unwrap_err().code().as_str(), "stale_claim");
    }
    // Attempt and fence must both match: the number alone can be guessed, and without the lock store
    // there is no fence.
    let (mut old_fence, mut old_attempt) = (second.claim.clone(), second.claim.clone());
    old_fence.fence = first.claim.fence;
    old_attempt.attempt = first.claim.attempt;
    for half in [old_fence, old_attempt] {
        let beat = parts.scheduler.heartbeat(&half).await.map(drop);
        let report = parts.scheduler.report(&half, Ok(json!(1))).await.map(drop);
        for refused in [beat, report] {
            assert_eq!(refused.unwrap_err().code().as_str(), "stale_claim", "{half:?}");
        }
    }
    parts.scheduler.report(&second.claim, Ok(json!(2))).await.unwrap();
    assert_eq!(parts.plane.job("j").await.unwrap().state, JobState::Succeeded);
    // The second worker's report ended the job, so a report of the first one is stale, not repeated.
    let late = parts.scheduler.report(&first.claim, Ok(json!(1))).await;
    assert_eq!(late.unwrap_err().code().as_str(), "stale_claim");
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_second_end_is_refused_and_counted() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", instant_executors(&fixture));
    parts.plane.submit(handler_job("j")).await.unwrap();
    let hold = parts.plane.locks().class("scheduler").acquire("job:j").await.unwrap().held().unwrap();
    let job = parts.plane.job("j").await.unwrap();
    let writer = parts.plane.writer();
    writer.apply(&hold, &job, job.cancel("once")).await.unwrap();
    let twice = writer.apply(&hold, &job, job.time_out("twice")).await;
    assert!(matches!(twice, Err(PlaneError::Refused(_))), "{twice:?}");
    assert_eq!(parts.counters.total("duplicate_terminal_total", ""), 1.0);
    let repeated = writer
        .apply(&hold, &job, job.dispatch(leasehold_plane::job::Owner { who: "a".into(), fence: None }))
        .await;
    assert!(repeated.is_err());
    assert_eq!(parts.counters.total("repeated_hand_over_total", ""), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_its_owners_is_quarantined() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    parts.plane.submit(handler_job("j")).await.unwrap();
    for round in 0..10 {
        let hold = parts.plane.locks().class("scheduler").acquire("job:j").await.unwrap().held().unwrap();
        let writer = parts.plane.writer();
        let job = parts.plane.job("j").await.unwrap();
        let job = writer.apply(&hold, &job, job.schedule()).await.unwrap();
        let owner = leasehold_plane::job::Owner { who: "a".into(), fence: None };
        let job = writer.apply(&hold, &job, job.dispatch(owner)).await.unwrap();
        let job = writer.apply(&hold, &job, job.owner_lost("crashed")).await.unwrap();
        let wanted = if round < 9 { JobState::Retrying } else { JobState::Quarantined };
        assert_eq!(job.state, wanted, "round {round}");
        hold.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_stored_after_the_plane_store_was_down() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    parts.plane.submit(handler_job("j")).await.unwrap();
    let replica = parts.replica(executors(&fixture, Duration::from_secs(5), 0));
    fixture.until(&parts, "j", JobState::Running).await;
    parts.store.set_down(true);
    fixture.pass(Duration::from_secs(20)).await;
    parts.store.set_down(false);
    let job = fixture.wait_for_state_within(&parts, "j", JobState::Succeeded, Duration::from_secs(10)).await;
    assert_eq!(job.attempt, 1, "what was done is written down, not done again");
    drop(replica);
}
