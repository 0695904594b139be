//! What the scheduler does with a job, on virtual time.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

mod bed;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bed::{Bed, LONG, handled, pulled};
use leasehold_core::Hold;
use leasehold_core::clock::{ClockExt, SharedClock};
use leasehold_plane::job::Outcome;
use leasehold_plane::scheduler::Claim;
use leasehold_plane::store::{PlaneStore, Queue};
use leasehold_plane::work::{Handler, Publisher, Works};
use leasehold_plane::{Cancelled, Job, JobSpec, JobState, PlaneError, Span};
use serde_json::{Value, json};

/// Fails this often, then answers; takes this long each time.
struct Flaky {
    clock: SharedClock,
    takes: Duration,
    failures: AtomicUsize,
}

#[async_trait]
impl Handler for Flaky {
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

fn works(bed: &Bed, takes: Duration, failures: usize) -> Works {
    Works::default().handler(
        "work",
        Flaky {
            clock: Arc::clone(&bed.clock),
            takes,
            failures: AtomicUsize::new(failures),
        },
    )
}

fn quick(bed: &Bed) -> Works {
    works(bed, Duration::ZERO, 0)
}

#[tokio::test(start_paused = true)]
async fn a_job_is_done_and_says_how() {
    let bed = Bed::new();
    let hand = bed.hand("a", quick(&bed));
    let submitted = hand.plane.submit(handled("j")).await.unwrap();
    assert!(!submitted.repeated && submitted.job.state == JobState::Pending);
    assert_eq!(hand.deliver_due().await, 1);
    let job = hand.plane.job("j").await.unwrap();
    assert_eq!(job.state, JobState::Succeeded);
    assert_eq!(job.outcome, Some(Outcome::Done(json!({"attempt": 1}))));
    let states: Vec<_> = hand
        .plane
        .job_history("j")
        .await
        .unwrap()
        .iter()
        .map(|event| serde_json::from_str::<Value>(&event.body).unwrap())
        .collect();
    let to: Vec<_> = states
        .iter()
        .map(|event| event["to"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(to, ["PENDING", "SCHEDULED", "DISPATCHED", "RUNNING", "SUCCEEDED"]);
    // Every end is recorded with fence and owner.
    assert!(
        states[4]["fence"].is_string() && states[4]["by"] == "a",
        "{}",
        states[4]
    );
    assert_eq!(hand.deliver_due().await, 0, "its mail is acknowledged");
}

#[tokio::test(start_paused = true)]
async fn submitted_twice_it_is_one_job() {
    let bed = Bed::new();
    let hand = bed.hand("a", quick(&bed));
    let spec = JobSpec {
        key: Some("k".into()),
        id: None,
        ..handled("x")
    };
    let first = hand.plane.submit(spec.clone()).await.unwrap();
    let again = hand.plane.submit(spec.clone()).await.unwrap();
    assert!(again.repeated && again.job.id == first.job.id);
    hand.deliver_due().await;
    let after = hand.plane.submit(spec).await.unwrap();
    assert_eq!((after.repeated, after.job.state), (true, JobState::Succeeded));
    assert_eq!(hand.deliver_due().await, 0, "a repetition sends no work");
    let other = JobSpec {
        key: Some("k".into()),
        id: None,
        ..pulled("x")
    };
    let refused = hand.plane.submit(other).await.unwrap_err();
    assert_eq!(refused.code(), "different_job");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_write_is_repeated_without_harm() {
    let bed = Bed::new();
    let hand = bed.hand("a", quick(&bed));
    hand.store.lose_answers(1);
    hand.plane.submit(handled("j")).await.unwrap();
    for _ in 0..4 {
        hand.store.lose_answers(1);
        hand.deliver_due().await;
    }
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Succeeded);
    assert_eq!(hand.plane.job_history("j").await.unwrap().len(), 5);
    assert_eq!(hand.counters.total("duplicate_terminal_total", ""), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_job_backs_off_and_dies_with_a_letter() {
    let bed = Bed::new();
    let hand = bed.hand("a", works(&bed, Duration::ZERO, 100));
    let spec = JobSpec {
        attempts: 4,
        backoff: Span(Duration::from_secs(10)),
        ..handled("j")
    };
    hand.plane.submit(spec).await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..3 {
        hand.deliver_due().await;
        assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Retrying);
        let from = bed.clock.now();
        while hand.plane.job("j").await.unwrap().state == JobState::Retrying {
            bed.pass(Duration::from_millis(100)).await;
            if hand.deliver_due().await > 0 {
                break;
            }
        }
        waits.push(bed.clock.now().since(from).as_secs_f64());
        if hand.plane.job("j").await.unwrap().state == JobState::Failed {
            break;
        }
    }
    // 10 s, 20 s, 40 s, each jittered by half.
    for (wait, around) in waits.iter().zip([10.0, 20.0, 40.0]) {
        assert!((around * 0.5..around * 1.5 + 0.2).contains(wait), "{waits:?}");
    }
    let job = hand.plane.job("j").await.unwrap();
    let dead = job.dead.unwrap();
    assert_eq!(
        (job.state, dead.attempts, dead.last_state),
        (JobState::Failed, 4, JobState::Running)
    );
    assert_eq!(dead.reason, "not yet");
    // It can be replayed, once.
    let replay = hand.plane.replay("j").await.unwrap();
    assert_eq!(replay.job.spec.labels["replay-of"], "j");
    assert!(hand.plane.replay("j").await.unwrap().repeated);
    let alive = hand.plane.replay(&replay.job.id).await.unwrap_err();
    assert_eq!(alive.code(), "not_dead");
}

#[derive(Debug)]
struct Deaf(AtomicUsize);

#[async_trait]
impl Publisher for Deaf {
    async fn publish(&self, _hold: &Hold, _job: &Job) -> Result<(), String> {
        match self.0.fetch_sub(1, Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err("the bus is down".into()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_hand_over_is_rolled_back_and_tried_again() {
    let bed = Bed::new();
    let hand = bed.hand(
        "a",
        Works::default().publisher(Arc::new(Deaf(AtomicUsize::new(1)))),
    );
    hand.plane.submit(pulled("j")).await.unwrap();
    hand.deliver_due().await;
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Scheduled);
    assert_eq!(hand.counters.total("rolled_back_total", ""), 1.0);
    bed.pass(Duration::from_millis(1600)).await;
    hand.deliver_due().await;
    let job = hand.plane.job("j").await.unwrap();
    assert_eq!((job.state, job.attempt), (JobState::Dispatched, 2));
}

#[tokio::test(start_paused = true)]
async fn busy_comes_again_in_about_half_a_second_and_errors_in_about_one() {
    let bed = Bed::new();
    let (hand, other) = (bed.hand("a", quick(&bed)), bed.hand("b", quick(&bed)));
    hand.plane.submit(handled("j")).await.unwrap();
    let held = other
        .plane
        .locks()
        .class("scheduler")
        .acquire("job:j")
        .await
        .unwrap();
    hand.deliver_due().await;
    assert_eq!(hand.counters.total("redelivered_total", "busy"), 1.0);
    bed.pass(Duration::from_millis(200)).await;
    assert_eq!(hand.deliver_due().await, 0);
    drop(held);
    bed.pass(Duration::from_millis(560)).await;
    assert_eq!(hand.deliver_due().await, 1);
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Succeeded);

    hand.plane.submit(handled("k")).await.unwrap();
    bed.chaos.all().down(true);
    hand.deliver_due().await;
    assert_eq!(hand.counters.total("redelivered_total", "error"), 1.0);
    assert_eq!(
        hand.plane.job("k").await.unwrap().state,
        JobState::Pending,
        "fail-closed: no work"
    );
    bed.chaos.all().down(false);
    bed.pass(Duration::from_millis(450)).await;
    assert_eq!(hand.deliver_due().await, 0);
    bed.pass(Duration::from_secs(30)).await;
    hand.deliver_due().await;
    assert_eq!(hand.plane.job("k").await.unwrap().state, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_and_a_timeout_end_a_job() {
    let bed = Bed::new();
    let hand = bed.hand("a", works(&bed, Duration::from_secs(50), 0));
    let deadline = JobSpec {
        deadline: Some(Span(Duration::from_secs(20))),
        ..handled("late")
    };
    let timeout = JobSpec {
        timeout: Some(Span(Duration::from_secs(10))),
        ..handled("slow")
    };
    hand.plane.submit(deadline).await.unwrap();
    hand.plane.submit(timeout).await.unwrap();
    let replica = hand.replica(works(&bed, Duration::from_secs(50), 0));
    let from = bed.clock.now();
    bed.until_within(&hand, "slow", JobState::Timeout, Duration::from_secs(12))
        .await;
    bed.until_within(&hand, "late", JobState::Timeout, Duration::from_secs(22))
        .await;
    assert!(bed.clock.now().since(from) >= Duration::from_secs(19));
    // Not in hands, it is the reconciler who ends it.
    let never = JobSpec {
        deadline: Some(Span(Duration::from_secs(5))),
        requires_approval: true,
        ..handled("unasked")
    };
    hand.plane.submit(never).await.unwrap();
    bed.until_within(&hand, "unasked", JobState::Timeout, Duration::from_secs(7))
        .await;
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn cancelling_reaches_work_under_way() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    hand.plane.submit(handled("waits")).await.unwrap();
    assert!(matches!(
        hand.plane.cancel("waits", "no").await.unwrap(),
        Cancelled::Now(_)
    ));
    assert!(matches!(
        hand.plane.cancel("waits", "no").await.unwrap(),
        Cancelled::Ended(_)
    ));
    hand.plane.submit(handled("works")).await.unwrap();
    let replica = hand.replica(works(&bed, LONG, 0));
    bed.until(&hand, "works", JobState::Running).await;
    let other = bed.hand("b", Works::default());
    assert!(matches!(
        other.plane.cancel("works", "wrong one").await.unwrap(),
        Cancelled::Requested(_)
    ));
    // Within one poll.
    let job = bed
        .until_within(&hand, "works", JobState::Cancelled, Duration::from_millis(1100))
        .await;
    let why = other
        .plane
        .job_history(&job.id)
        .await
        .unwrap()
        .pop()
        .unwrap()
        .body;
    assert!(why.contains("wrong one"), "{why}");
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn resources_are_taken_all_or_nothing() {
    let bed = Bed::new();
    let (hand, other) = (bed.hand("a", quick(&bed)), bed.hand("b", quick(&bed)));
    let held = other
        .plane
        .locks()
        .class("scheduler")
        .acquire("res:default:printer")
        .await
        .unwrap();
    let spec = JobSpec {
        resources: vec!["scanner".into(), "printer".into(), "adapter".into()],
        ..handled("j")
    };
    hand.plane.submit(spec).await.unwrap();
    hand.deliver_due().await;
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Pending);
    assert_eq!(hand.counters.total("redelivered_total", "resource"), 1.0);
    assert_eq!(
        hand.plane.locks().left().await.holds,
        0,
        "what it had got is given back"
    );
    drop(held);
    bed.pass(Duration::from_secs(1)).await;
    hand.deliver_due().await;
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Succeeded);
    assert_eq!(hand.plane.locks().left().await.holds, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_followed_within_ttl_and_one_poll() {
    let bed = Bed::new();
    let way = bed.own_way();
    let victim = bed.hand_behind(&way, "victim", Works::default(), Bed::settings());
    victim.plane.submit(handled("j")).await.unwrap();
    // Its process dies at work: nobody renews, nobody releases.
    let locks = victim.plane.locks().clone();
    let hold = locks
        .class("scheduler")
        .acquire("job:j")
        .await
        .unwrap()
        .held()
        .unwrap();
    let job = victim.plane.job("j").await.unwrap();
    let ledger = victim.plane.ledger();
    let job = ledger.apply(&hold, &job, job.schedule()).await.unwrap();
    let owner = leasehold_plane::job::Owner {
        who: "victim".into(),
        fence: hold.unfenced().unwrap(),
    };
    let job = ledger
        .apply(&hold, &job, job.dispatch(owner.clone()))
        .await
        .unwrap();
    ledger.apply(&hold, &job, job.start(owner, None)).await.unwrap();
    let visible = victim.plane.settings().visible;
    for mail in victim.store.take(Queue::Jobs, 10, visible).await.unwrap() {
        assert!(ledger.ack(&hold, &mail).await.unwrap());
    }
    // It has been at work for a while: what counts is how long its lease has been over.
    bed.pass(Duration::from_secs(300)).await;
    // Dead: every further word of it is lost.
    way.all().down(true);
    let died = bed.clock.now();
    let other = bed.hand("other", Works::default());
    let replica = other.replica(quick(&bed));
    let done = bed.until(&other, "j", JobState::Succeeded).await;
    let took = bed.clock.now().since(died);
    assert!(took <= Duration::from_secs(60 + 1 + 1), "{took:?}");
    assert_eq!((done.attempt, done.losses, done.failures), (2, 1, 0));
    assert_eq!(other.counters.total("takeover_total", "job"), 1.0);
    let late = other.counters.total("takeover_seconds", "job");
    assert!(late > 0.0 && late <= 1.0, "counted from the lease's end: {late}");
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn pull_workers_claim_beat_and_report() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    assert!(hand.scheduler.claim("work", "w1").await.unwrap().is_none());
    hand.plane.submit(pulled("j")).await.unwrap();
    hand.deliver_due().await;
    let claimed = hand.scheduler.claim("work", "w1").await.unwrap().unwrap();
    assert_eq!(claimed.job.state, JobState::Running);
    assert!(claimed.claim.fence.is_some());
    assert!(hand.scheduler.claim("work", "w2").await.unwrap().is_none());
    hand.scheduler.heartbeat(&claimed.claim).await.unwrap();
    let reported = hand.scheduler.report(&claimed.claim, Ok(json!(7))).await.unwrap();
    assert_eq!(
        (reported.repeated, reported.job.state),
        (false, JobState::Succeeded)
    );
    // Said again it changes nothing, and is counted.
    assert!(
        hand.scheduler
            .report(&claimed.claim, Ok(json!(8)))
            .await
            .unwrap()
            .repeated
    );
    assert_eq!(
        hand.plane.job("j").await.unwrap().outcome,
        Some(Outcome::Done(json!(7)))
    );
    assert_eq!(hand.counters.total("duplicate_terminal_total", ""), 1.0);
    assert_eq!(hand.locks.total("duplicate_terminal_total", ""), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_loses_its_claim() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    hand.plane.submit(pulled("j")).await.unwrap();
    let replica = hand.replica(Works::default());
    bed.until(&hand, "j", JobState::Dispatched).await;
    let first = hand.scheduler.claim("work", "w1").await.unwrap().unwrap();
    // Silent for longer than a heartbeat: within one more poll it is someone else's.
    bed.pass(first.heartbeat + Duration::from_secs(2)).await;
    bed.until_within(&hand, "j", JobState::Dispatched, Duration::from_secs(2))
        .await;
    let second = hand.scheduler.claim("work", "w2").await.unwrap().unwrap();
    assert!(second.claim.attempt > first.claim.attempt && second.claim.fence > first.claim.fence);
    for late in [
        hand.scheduler.heartbeat(&first.claim).await.map(drop),
        hand.scheduler.report(&first.claim, Ok(json!(1))).await.map(drop),
    ] {
        assert_eq!(late.unwrap_err().code(), "stale_claim");
    }
    // Nor does one half of the new claim do: the number alone can be guessed, and without the lock store there is no fence.
    let old_fence = Claim {
        fence: first.claim.fence,
        ..second.claim.clone()
    };
    let old_attempt = Claim {
        attempt: first.claim.attempt,
        ..second.claim.clone()
    };
    for half in [old_fence, old_attempt] {
        let beat = hand.scheduler.heartbeat(&half).await.map(drop);
        let report = hand.scheduler.report(&half, Ok(json!(1))).await.map(drop);
        for refused in [beat, report] {
            assert_eq!(refused.unwrap_err().code(), "stale_claim", "{half:?}");
        }
    }
    hand.scheduler.report(&second.claim, Ok(json!(2))).await.unwrap();
    assert_eq!(hand.plane.job("j").await.unwrap().state, JobState::Succeeded);
    // Its end is the second one's: the first is not told that its own has come twice.
    let late = hand.scheduler.report(&first.claim, Ok(json!(1))).await;
    assert_eq!(late.unwrap_err().code(), "stale_claim");
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_second_end_is_refused_and_counted() {
    let bed = Bed::new();
    let hand = bed.hand("a", quick(&bed));
    hand.plane.submit(handled("j")).await.unwrap();
    let hold = hand
        .plane
        .locks()
        .class("scheduler")
        .acquire("job:j")
        .await
        .unwrap()
        .held()
        .unwrap();
    let job = hand.plane.job("j").await.unwrap();
    let ledger = hand.plane.ledger();
    ledger.apply(&hold, &job, job.cancel("once")).await.unwrap();
    let twice = ledger.apply(&hold, &job, job.time_out("twice")).await;
    assert!(matches!(twice, Err(PlaneError::Refused(_))), "{twice:?}");
    assert_eq!(hand.counters.total("duplicate_terminal_total", ""), 1.0);
    let repeated = ledger
        .apply(
            &hold,
            &job,
            job.dispatch(leasehold_plane::job::Owner {
                who: "a".into(),
                fence: None,
            }),
        )
        .await;
    assert!(repeated.is_err());
    assert_eq!(hand.counters.total("repeated_hand_over_total", ""), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_its_owners_with_it_is_quarantined() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    hand.plane.submit(handled("j")).await.unwrap();
    for round in 0..10 {
        let hold = hand
            .plane
            .locks()
            .class("scheduler")
            .acquire("job:j")
            .await
            .unwrap()
            .held()
            .unwrap();
        let ledger = hand.plane.ledger();
        let job = hand.plane.job("j").await.unwrap();
        let job = ledger.apply(&hold, &job, job.schedule()).await.unwrap();
        let owner = leasehold_plane::job::Owner {
            who: "a".into(),
            fence: None,
        };
        let job = ledger.apply(&hold, &job, job.dispatch(owner)).await.unwrap();
        let job = ledger.apply(&hold, &job, job.lose("crashed")).await.unwrap();
        let wanted = if round < 9 {
            JobState::Retrying
        } else {
            JobState::Quarantined
        };
        assert_eq!(job.state, wanted, "round {round}");
        hold.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_plane_store_may_be_down_while_work_ends() {
    let bed = Bed::new();
    let hand = bed.hand("a", Works::default());
    hand.plane.submit(handled("j")).await.unwrap();
    let replica = hand.replica(works(&bed, Duration::from_secs(5), 0));
    bed.until(&hand, "j", JobState::Running).await;
    hand.store.set_down(true);
    bed.pass(Duration::from_secs(20)).await;
    hand.store.set_down(false);
    let job = bed
        .until_within(&hand, "j", JobState::Succeeded, Duration::from_secs(10))
        .await;
    assert_eq!(job.attempt, 1, "what was done is written down, not done again");
    drop(replica);
}
