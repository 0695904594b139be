//! What the engine does with runs, and with a lock store that fails.

// A stage that cannot be set is a failed test.
#![allow(clippy::unwrap_used)]

mod bed;

use std::time::Duration;

use async_trait::async_trait;
use bed::{Bed, Hand};
use leasehold_core::Hold;
use leasehold_plane::approval::Verdict;
use leasehold_plane::work::{Handler, Works};
use leasehold_plane::workflow::{Run, RunState, StartRun, StepStatus, parse};
use leasehold_plane::{Job, JobState, Settings};
use serde_json::{Value, json};

struct Fine;

#[async_trait]
impl Handler for Fine {
    async fn run(&self, _hold: &Hold, job: &Job) -> Result<Value, String> {
        match job.spec.payload["fail"].as_bool() {
            Some(true) => Err("as it was told".into()),
            _ => Ok(json!({})),
        }
    }
}

fn works() -> Works {
    Works::default().handler("work", Fine)
}

const DIAMOND: &str = "
name = \"w\"
class = \"CLASS\"
[[step]]
id = \"build\"
handler = \"work\"
[[step]]
id = \"left\"
needs = [\"build\"]
handler = \"work\"
[[step]]
id = \"right\"
needs = [\"build\"]
delay = \"30s\"
[[step]]
id = \"ask\"
needs = [\"left\", \"right\"]
approval = \"well?\"
[[step]]
id = \"ship\"
needs = [\"ask\"]
handler = \"work\"
attempts = 1
payload = { fail = FAIL }
";

async fn started(hand: &Hand, class: &str, fail: bool) {
    let text = DIAMOND.replace("CLASS", class).replace("FAIL", &fail.to_string());
    let workflow = parse("w.toml", &text).unwrap();
    hand.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRun {
        workflow: "w".into(),
        id: Some("r".into()),
        ..StartRun::default()
    };
    assert!(!hand.plane.start(start.clone()).await.unwrap().repeated);
    assert!(hand.plane.start(start).await.unwrap().repeated);
}

async fn until_run(bed: &Bed, hand: &Hand, wanted: impl Fn(&Run) -> bool) -> Run {
    let end = bed.clock.now() + Duration::from_secs(3600);
    loop {
        let run = hand.plane.run("r").await.unwrap();
        if wanted(&run) {
            return run;
        }
        assert!(bed.clock.now() < end, "{run:?}");
        bed.pass(Duration::from_millis(50)).await;
    }
}

fn yes() -> Verdict {
    Verdict {
        by: "ann".into(),
        reason: "fine".into(),
        snapshot: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_through_its_graph() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow-critical", false).await;
    let replica = hand.replica(works());
    let from = bed.clock.now();
    let run = until_run(&bed, &hand, |run| run.steps["ask"].status == StepStatus::Running).await;
    // The two in the middle are independent; the delay is woken within a poll of its time.
    let took = bed.clock.now().since(from);
    assert!((30.0..33.0).contains(&took.as_secs_f64()), "{took:?}");
    assert_eq!(run.steps["ship"].status, StepStatus::Waiting);
    hand.plane.approve("r.ask.1", &yes()).await.unwrap();
    let run = until_run(&bed, &hand, |run| run.state.ended()).await;
    assert_eq!(run.state, RunState::Succeeded);
    // One job for each step that works, brought by its own key.
    assert_eq!(
        hand.plane
            .jobs(&[JobState::Succeeded], None, 100)
            .await
            .unwrap()
            .len(),
        4
    );
    assert_eq!(hand.counters.total("repeated_step_total", ""), 0.0);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_ends_the_run_and_it_can_be_rerun_from_there() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow", true).await;
    let replica = hand.replica(works());
    until_run(&bed, &hand, |run| run.steps["ask"].status == StepStatus::Running).await;
    hand.plane.approve("r.ask.1", &yes()).await.unwrap();
    let run = until_run(&bed, &hand, |run| run.state.ended()).await;
    assert_eq!(
        (run.state, run.steps["ship"].status),
        (RunState::Failed, StepStatus::Failed)
    );
    assert!(run.steps["ship"].why.as_ref().unwrap().contains("as it was told"));
    assert_eq!(
        hand.plane.rerun("r", "nothing").await.unwrap_err().code(),
        "no_such_step"
    );
    hand.plane.rerun("r", "ship").await.unwrap();
    hand.plane.rerun("r", "ship").await.unwrap();
    let run = until_run(&bed, &hand, |run| {
        run.state.ended() && run.steps["ship"].attempt > 1
    })
    .await;
    assert_eq!(
        run.steps["ship"].attempt, 2,
        "asked twice for the same end, it is one rerun"
    );
    assert_eq!(
        run.steps["build"].attempt, 1,
        "what came before is not done again"
    );
    // The result of the first attempt comes once more: it is stale and changes nothing.
    let version = run.version;
    let late = leasehold_plane::store::Mail {
        queue: leasehold_plane::store::Queue::Runs,
        id: "late".into(),
        to: "r".into(),
        body: json!({"verb": "result", "step": "ship", "attempt": 1, "job": "r.ship.1"}).to_string(),
        due_in: Duration::ZERO,
    };
    use leasehold_plane::store::PlaneStore;
    bed.memory.send(&late).await.unwrap();
    bed.pass(Duration::from_secs(2)).await;
    assert_eq!(hand.plane.run("r").await.unwrap().version, version);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_step_fails_and_a_cancelled_run_stops_its_jobs() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow", false).await;
    let replica = hand.replica(works());
    until_run(&bed, &hand, |run| run.steps["ask"].status == StepStatus::Running).await;
    hand.plane.cancel_run("r", "changed our minds").await.unwrap();
    let run = until_run(&bed, &hand, |run| run.state.ended()).await;
    assert_eq!(
        (run.state, run.steps["ship"].status),
        (RunState::Cancelled, StepStatus::Cancelled)
    );
    bed.until_within(&hand, "r.ask.1", JobState::Cancelled, Duration::from_secs(3))
        .await;
    assert_eq!(
        hand.plane.cancel_run("r", "again").await.unwrap_err().code(),
        "terminal"
    );
    hand.plane.rerun("r", "ask").await.unwrap();
    until_run(&bed, &hand, |run| run.steps["ask"].attempt == 2).await;
    bed.until(&hand, "r.ask.2", JobState::ApprovalRequired).await;
    hand.plane.reject("r.ask.2", &yes()).await.unwrap();
    let run = until_run(&bed, &hand, |run| run.state.ended()).await;
    assert_eq!(
        (run.state, run.steps["ship"].status),
        (RunState::Failed, StepStatus::Skipped)
    );
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_result_is_dropped_and_counted() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow-critical", false).await;
    hand.deliver_due().await; // start
    hand.deliver_due().await; // build, and its result
    let order = json!({"verb": "result", "step": "build", "attempt": 1, "job": "r.build.1"});
    let hold = hand
        .plane
        .locks()
        .class("workflow-critical")
        .acquire("run:r")
        .await
        .unwrap()
        .held()
        .unwrap();
    let before = hand.engine.advance(&hold, "r", &order).await.unwrap();
    assert_eq!(before.steps["build"].status, StepStatus::Done);
    let again = hand.engine.advance(&hold, "r", &order).await.unwrap();
    assert_eq!(again.version, before.version);
    assert!(hand.counters.total("repeated_step_total", "") >= 1.0);
    let other = hand
        .plane
        .locks()
        .class("workflow-critical")
        .acquire("run:s")
        .await
        .unwrap()
        .held()
        .unwrap();
    assert!(
        hand.engine.advance(&other, "r", &order).await.is_err(),
        "a hold covers its own run only"
    );
}

/// Trap 31 (the articles' workflow reconciler): code that holds the run's lock passes the hold on; nothing locks twice, and
/// a run that someone else holds is not reported as advanced.
#[tokio::test(start_paused = true)]
async fn trap_31_a_held_run_is_advanced_under_the_hold_and_never_skipped_as_done() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow-critical", false).await;
    let hold = hand
        .plane
        .locks()
        .class("workflow-critical")
        .acquire("run:r")
        .await
        .unwrap()
        .held()
        .unwrap();
    // Our own delivery finds the lock held by this very process: it comes again, it is not acknowledged.
    hand.deliver_due().await;
    assert_eq!(hand.counters.total("redelivered_total", "busy"), 1.0);
    assert_eq!(hand.plane.run("r").await.unwrap().state, RunState::Pending);
    let run = hand
        .engine
        .advance(&hold, "r", &json!({"verb": "start"}))
        .await
        .unwrap();
    assert_eq!(run.steps["build"].status, StepStatus::Running);
    hold.release().await;
}

#[tokio::test(start_paused = true)]
async fn lost_results_and_lost_jobs_are_found_again() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow", false).await;
    hand.deliver_due().await;
    hand.deliver_due().await;
    // Someone throws the mail away.
    use leasehold_plane::store::{PlaneStore, Queue, Settle};
    for mail in bed.memory.take(Queue::Runs, 10, Duration::ZERO).await.unwrap() {
        bed.memory.settle(&mail, Settle::Ack).await.unwrap();
    }
    let replica = hand.replica(works());
    until_run(&bed, &hand, |run| run.steps["build"].status == StepStatus::Done).await;
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn while_the_lock_store_is_down_workflow_goes_on_and_is_counted() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow", false).await;
    let replica = hand.replica(works());
    bed.chaos.all().down(true);
    until_run(&bed, &hand, |run| run.steps["left"].status == StepStatus::Done).await;
    assert!(hand.locks.total("fallback_total", "") >= 2.0);
    assert!(hand.counters.total("unfenced_write_total", "") >= 2.0);
    let history = hand.plane.timeline("r").await.unwrap();
    assert!(
        history
            .iter()
            .any(|event| event.body.contains("\"local_only\":true"))
    );
    bed.chaos.all().down(false);
    until_run(&bed, &hand, |run| run.steps["ask"].status == StepStatus::Running).await;
    let ends = |job: &str| {
        let plane = hand.plane.clone();
        let job = job.to_owned();
        async move {
            let history = plane.job_history(&job).await.unwrap();
            history
                .iter()
                .filter(|event| event.body.contains("\"to\":\"SUCCEEDED\""))
                .count()
        }
    };
    assert_eq!((ends("r.build.1").await, ends("r.left.1").await), (1, 1));
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn while_the_lock_store_is_down_critical_work_pauses_and_resumes() {
    let bed = Bed::new();
    let hand = bed.hand("a", works());
    started(&hand, "workflow-critical", false).await;
    let replica = hand.replica(works());
    bed.chaos.all().down(true);
    bed.pass(Duration::from_secs(90)).await;
    let run = hand.plane.run("r").await.unwrap();
    assert_eq!(
        (run.state, run.version),
        (RunState::Pending, 1),
        "nothing happened"
    );
    assert!(hand.counters.total("redelivered_total", "error") > 0.0);
    assert_eq!(hand.locks.total("fallback_total", ""), 0.0);
    bed.chaos.all().down(false);
    until_run(&bed, &hand, |run| run.steps["left"].status == StepStatus::Done).await;
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn two_local_only_engines_bound_their_duplicates() {
    let bed = Bed::new();
    bed.chaos.all().down(true);
    let (one, two) = (bed.hand("a", works()), bed.hand("b", works()));
    // Definitions are changed under a fail-closed class, so this one is put there before.
    bed.chaos.all().down(false);
    started(&one, "workflow", false).await;
    bed.chaos.all().down(true);
    let order = json!({"verb": "start"});
    let first = one
        .plane
        .locks()
        .class("workflow")
        .acquire("run:r")
        .await
        .unwrap()
        .held()
        .unwrap();
    let second = two
        .plane
        .locks()
        .class("workflow")
        .acquire("run:r")
        .await
        .unwrap()
        .held()
        .unwrap();
    let (a, b) = tokio::join!(
        one.engine.advance(&first, "r", &order),
        two.engine.advance(&second, "r", &order)
    );
    assert_eq!(
        a.unwrap().version,
        b.unwrap().version,
        "one of them wrote, the other saw it"
    );
    assert_eq!(one.plane.jobs(&[], None, 10).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn admission_is_a_limit() {
    let bed = Bed::new();
    let settings = Settings {
        admission: Some(2),
        ..Bed::settings()
    };
    let hand = bed.hand_with("a", works(), settings);
    let workflow = parse("w.toml", "name = \"w\"\n[[step]]\nid = \"s\"\ndelay = \"1h\"\n").unwrap();
    hand.plane.apply_workflow(&workflow).await.unwrap();
    let start = |org: &str| StartRun {
        workflow: "w".into(),
        org: org.into(),
        ..StartRun::default()
    };
    let (one, two, three) = tokio::join!(
        hand.plane.start(start("acme")),
        hand.plane.start(start("acme")),
        hand.plane.start(start("acme"))
    );
    let refused: Vec<_> = [one, two, three].into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((refused[0].code(), refused[0].status()), ("limit_reached", 429));
    hand.plane.start(start("other")).await.unwrap();
    // What was admitted and is said again is the same run, also at the limit.
    let named = || StartRun {
        id: Some("named".into()),
        ..start("other")
    };
    assert!(!hand.plane.start(named()).await.unwrap().repeated);
    assert!(hand.plane.start(named()).await.unwrap().repeated);
    let keyed = || StartRun {
        key: Some("once".into()),
        ..start("third")
    };
    let first = hand.plane.start(keyed()).await.unwrap().run.id;
    hand.plane.start(start("third")).await.unwrap();
    assert_eq!(hand.plane.start(keyed()).await.unwrap().run.id, first);
    assert_eq!(
        hand.plane.start(start("other")).await.unwrap_err().code(),
        "limit_reached"
    );
    bed.chaos.all().down(true);
    let unasked = hand.plane.start(start("other")).await.unwrap_err();
    assert_eq!((unasked.code(), unasked.status()), ("lock_unavailable", 503));
    assert!(unasked.retry_after().is_some());
}
