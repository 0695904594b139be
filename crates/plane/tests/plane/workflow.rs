//! The workflow engine: runs, reruns and cancels, and its behaviour while the lock store fails.

// A failed set-up is a failed test.

use std::time::Duration;

use crate::fixture::{Fixture, ReplicaParts};
use async_trait::async_trait;
use leasehold_core::Hold;
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::work::{Executors, Handler};
use leasehold_plane::workflow::{Run, RunState, StartRunRequest, StepStatus, parse};
use leasehold_plane::{Job, JobState, Settings};
use serde_json::{Value, json};

struct PayloadHandler;

#[async_trait]
impl Handler for PayloadHandler {
    async fn run(&self, _hold: &Hold, job: &Job) -> Result<Value, String> {
        match job.spec.payload["fail"].as_bool() {
            Some(true) => Err("as it was told".into()),
            _ => Ok(json!({})),
        }
    }
}

fn executors() -> Executors {
    Executors::default().handler("work", PayloadHandler)
}

const DIAMOND_WORKFLOW: &str = "
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

async fn start_diamond(parts: &ReplicaParts, class: &str, fail: bool) {
    let text = DIAMOND_WORKFLOW.replace("CLASS", class).replace("FAIL", &fail.to_string());
    let workflow = parse("w.toml", &text).unwrap();
    parts.plane.apply_workflow(&workflow).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    assert!(!parts.plane.start_run(start.clone()).await.unwrap().repeated);
    assert!(parts.plane.start_run(start).await.unwrap().repeated);
}

async fn until_run(fixture: &Fixture, parts: &ReplicaParts, wanted: impl Fn(&Run) -> bool) -> Run {
    let end = fixture.clock.now() + Duration::from_secs(3600);
    loop {
        let run = parts.plane.run("r").await.unwrap();
        if wanted(&run) {
            return run;
        }
        assert!(fixture.clock.now() < end, "{run:?}");
        fixture.pass(Duration::from_millis(50)).await;
    }
}

async fn decision_on(parts: &ReplicaParts, job: &str) -> DecisionRequest {
    let snapshot = parts.plane.job(job).await.unwrap().snapshot();
    DecisionRequest { by: "ann".into(), reason: "fine".into(), snapshot }
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_through_its_graph() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow-critical", false).await;
    let replica = parts.replica(executors());
    let from = fixture.clock.now();
    let run = until_run(&fixture, &parts, |run| run.steps["ask"].status == StepStatus::Running).await;
    // The two steps in the middle are independent; the delay ends within one poll of its time.
    let took = fixture.clock.now().since(from);
    assert!((30.0..33.0).contains(&took.as_secs_f64()), "{took:?}");
    assert_eq!(run.steps["ship"].status, StepStatus::Waiting);
    parts.plane.approve("r.ask.1", &decision_on(&parts, "r.ask.1").await).await.unwrap();
    let run = until_run(&fixture, &parts, |run| run.state.is_terminal()).await;
    assert_eq!(run.state, RunState::Succeeded);
    // One job per step with work, each with its own key.
    assert_eq!(parts.plane.jobs(&[JobState::Succeeded], None, 100).await.unwrap().len(), 4);
    assert_eq!(parts.counters.total("repeated_step_total", ""), 0.0);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_ends_the_run_and_it_can_be_rerun_from_there() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow", true).await;
    let replica = parts.replica(executors());
    until_run(&fixture, &parts, |run| run.steps["ask"].status == StepStatus::Running).await;
    parts.plane.approve("r.ask.1", &decision_on(&parts, "r.ask.1").await).await.unwrap();
    let run = until_run(&fixture, &parts, |run| run.state.is_terminal()).await;
    assert_eq!((run.state, run.steps["ship"].status), (RunState::Failed, StepStatus::Failed));
    assert!(run.steps["ship"].why.as_ref().unwrap().contains("as it was told"));
    assert_eq!(parts.plane.rerun("r", "nothing").await.unwrap_err().code().as_str(), "no_such_step");
    parts.plane.rerun("r", "ship").await.unwrap();
    parts.plane.rerun("r", "ship").await.unwrap();
    let run =
        until_run(&fixture, &parts, |run| run.state.is_terminal() && run.steps["ship"].attempt > 1).await;
    assert_eq!(run.steps["ship"].attempt, 2, "asked twice for the same end, it is one rerun");
    assert_eq!(run.steps["build"].attempt, 1, "what came before is not done again");
    // A late result of the first attempt is stale and changes nothing.
    let version = run.version;
    let late = leasehold_plane::store::Message {
        queue: leasehold_plane::store::Queue::Runs,
        id: "late".into(),
        document_id: "r".into(),
        body: json!({"verb": "result", "step": "ship", "attempt": 1, "job": "r.ship.1"}).to_string(),
        due_in: Duration::ZERO,
    };
    use leasehold_plane::store::PlaneStore;
    fixture.memory.send(&late).await.unwrap();
    fixture.pass(Duration::from_secs(2)).await;
    assert_eq!(parts.plane.run("r").await.unwrap().version, version);
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_rerun_that_ends_at_once_is_made_once() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    let text = "name = \"w\"\n[[step]]\nid = \"wait\"\ndelay = \"0s\"\n";
    parts.plane.apply_workflow(&parse("w.toml", text).unwrap()).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("r".into()), ..StartRunRequest::default() };
    parts.plane.start_run(start).await.unwrap();
    let replica = parts.replica(executors());
    let first = until_run(&fixture, &parts, |run| run.state.is_terminal()).await;
    parts.plane.rerun("r", "wait").await.unwrap();
    let run = until_run(&fixture, &parts, |run| run.steps["wait"].attempt == 2).await;
    assert_eq!((run.state, run.steps["wait"].status), (RunState::Succeeded, StepStatus::Done));
    drop(replica);
    // Delivered again, because its acknowledgement was lost.
    let order = json!({"verb": "rerun", "from": "wait", "version": first.version});
    let class = run.workflow.class.as_str();
    let hold = parts.plane.locks().class(class).acquire("run:r").await.unwrap().held().unwrap();
    assert_eq!(parts.engine.advance(&hold, "r", &order).await.unwrap().version, run.version);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_step_fails_and_a_cancelled_run_stops_its_jobs() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow", false).await;
    let replica = parts.replica(executors());
    until_run(&fixture, &parts, |run| run.steps["ask"].status == StepStatus::Running).await;
    parts.plane.cancel_run("r", "changed our minds").await.unwrap();
    let run = until_run(&fixture, &parts, |run| run.state.is_terminal()).await;
    assert_eq!((run.state, run.steps["ship"].status), (RunState::Cancelled, StepStatus::Cancelled));
    fixture.wait_for_state_within(&parts, "r.ask.1", JobState::Cancelled, Duration::from_secs(3)).await;
    assert_eq!(parts.plane.cancel_run("r", "again").await.unwrap_err().code().as_str(), "terminal");
    parts.plane.rerun("r", "ask").await.unwrap();
    until_run(&fixture, &parts, |run| run.steps["ask"].attempt == 2).await;
    fixture.until(&parts, "r.ask.2", JobState::ApprovalRequired).await;
    parts.plane.reject("r.ask.2", &decision_on(&parts, "r.ask.2").await).await.unwrap();
    let run = until_run(&fixture, &parts, |run| run.state.is_terminal()).await;
    assert_eq!((run.state, run.steps["ship"].status), (RunState::Failed, StepStatus::Skipped));
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_result_is_ignored_and_counted() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow-critical", false).await;
    parts.deliver_due().await; // start
    parts.deliver_due().await; // build, and its result
    let order = json!({"verb": "result", "step": "build", "attempt": 1, "job": "r.build.1"});
    let hold = parts.plane.locks().class("workflow-critical").acquire("run:r").await.unwrap().held().unwrap();
    let before = parts.engine.advance(&hold, "r", &order).await.unwrap();
    assert_eq!(before.steps["build"].status, StepStatus::Done);
    let again = parts.engine.advance(&hold, "r", &order).await.unwrap();
    assert_eq!(again.version, before.version);
    assert!(parts.counters.total("repeated_step_total", "") >= 1.0);
    let other =
        parts.plane.locks().class("workflow-critical").acquire("run:s").await.unwrap().held().unwrap();
    assert!(parts.engine.advance(&other, "r", &order).await.is_err(), "a hold covers its own run only");
}

/// Trap 31 (the specification's workflow reconciler): code that holds the run's lock passes the hold on.
/// Nothing locks twice, and a run that another owner holds is not reported as advanced.
#[tokio::test(start_paused = true)]
async fn trap_31_a_held_run_is_advanced_under_the_hold_and_never_skipped_as_done() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow-critical", false).await;
    let hold = parts.plane.locks().class("workflow-critical").acquire("run:r").await.unwrap().held().unwrap();
    // The delivery finds the lock held by this very process: it is redelivered, not acknowledged.
    parts.deliver_due().await;
    assert_eq!(parts.counters.total("redelivered_total", "busy"), 1.0);
    assert_eq!(parts.plane.run("r").await.unwrap().state, RunState::Pending);
    let run = parts.engine.advance(&hold, "r", &json!({"verb": "start"})).await.unwrap();
    assert_eq!(run.steps["build"].status, StepStatus::Running);
    hold.release().await;
}

#[tokio::test(start_paused = true)]
async fn lost_results_are_recovered() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow", false).await;
    parts.deliver_due().await;
    parts.deliver_due().await;
    // The result messages get lost.
    use leasehold_plane::store::{Disposition, PlaneStore, Queue};
    for message in fixture.memory.receive(Queue::Runs, 10, Duration::ZERO).await.unwrap() {
        fixture.memory.settle(&message, Disposition::Ack).await.unwrap();
    }
    let replica = parts.replica(executors());
    until_run(&fixture, &parts, |run| run.steps["build"].status == StepStatus::Done).await;
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn while_the_lock_store_is_down_workflow_goes_on_and_is_counted() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow", false).await;
    let replica = parts.replica(executors());
    fixture.chaos.all().down(true);
    until_run(&fixture, &parts, |run| run.steps["left"].status == StepStatus::Done).await;
    assert!(parts.locks.total("fallback_total", "") >= 2.0);
    assert!(parts.counters.total("unfenced_write_total", "") >= 2.0);
    let history = parts.plane.run_history("r").await.unwrap();
    assert!(history.iter().any(|event| event.body.contains("\"local_only\":true")));
    fixture.chaos.all().down(false);
    until_run(&fixture, &parts, |run| run.steps["ask"].status == StepStatus::Running).await;
    let ends = |job: &str| {
        let plane = parts.plane.clone();
        let job = job.to_owned();
        async move {
            let history = plane.job_history(&job).await.unwrap();
            history.iter().filter(|event| event.body.contains("\"to\":\"SUCCEEDED\"")).count()
        }
    };
    assert_eq!((ends("r.build.1").await, ends("r.left.1").await), (1, 1));
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn while_the_lock_store_is_down_critical_work_pauses_and_resumes() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", executors());
    start_diamond(&parts, "workflow-critical", false).await;
    let replica = parts.replica(executors());
    fixture.chaos.all().down(true);
    fixture.pass(Duration::from_secs(90)).await;
    let run = parts.plane.run("r").await.unwrap();
    assert_eq!((run.state, run.version), (RunState::Pending, 1), "nothing happened");
    assert!(parts.counters.total("redelivered_total", "error") > 0.0);
    assert_eq!(parts.locks.total("fallback_total", ""), 0.0);
    fixture.chaos.all().down(false);
    until_run(&fixture, &parts, |run| run.steps["left"].status == StepStatus::Done).await;
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn two_local_only_engines_make_one_job() {
    let fixture = Fixture::new();
    fixture.chaos.all().down(true);
    let (one, two) = (fixture.replica_parts("a", executors()), fixture.replica_parts("b", executors()));
    // Definitions are changed under a fail-closed class, so the lock store must be up for this.
    fixture.chaos.all().down(false);
    start_diamond(&one, "workflow", false).await;
    fixture.chaos.all().down(true);
    let order = json!({"verb": "start"});
    let first = one.plane.locks().class("workflow").acquire("run:r").await.unwrap().held().unwrap();
    let second = two.plane.locks().class("workflow").acquire("run:r").await.unwrap().held().unwrap();
    let (a, b) =
        tokio::join!(one.engine.advance(&first, "r", &order), two.engine.advance(&second, "r", &order));
    assert_eq!(a.unwrap().version, b.unwrap().version, "one of them wrote, the other saw it");
    assert_eq!(one.plane.jobs(&[], None, 10).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn admission_is_a_limit() {
    let fixture = Fixture::new();
    let settings = Settings { max_runs_per_org: Some(2), ..Fixture::settings() };
    let parts = fixture.replica_parts_with("a", executors(), settings);
    let workflow = parse("w.toml", "name = \"w\"\n[[step]]\nid = \"s\"\ndelay = \"1h\"\n").unwrap();
    parts.plane.apply_workflow(&workflow).await.unwrap();
    let start =
        |org: &str| StartRunRequest { workflow: "w".into(), org: org.into(), ..StartRunRequest::default() };
    let (one, two, three) = tokio::join!(
        parts.plane.start_run(start("acme")),
        parts.plane.start_run(start("acme")),
        parts.plane.start_run(start("acme"))
    );
    let refused: Vec<_> = [one, two, three].into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((refused[0].code().as_str(), refused[0].code().status()), ("limit_reached", 429));
    parts.plane.start_run(start("other")).await.unwrap();
    // A repeated start of an admitted run returns that run, also at the limit.
    let named = || StartRunRequest { id: Some("other:named".into()), ..start("other") };
    assert!(!parts.plane.start_run(named()).await.unwrap().repeated);
    assert!(parts.plane.start_run(named()).await.unwrap().repeated);
    let keyed = || StartRunRequest { key: Some("once".into()), ..start("third") };
    let first = parts.plane.start_run(keyed()).await.unwrap().run.id;
    parts.plane.start_run(start("third")).await.unwrap();
    assert_eq!(parts.plane.start_run(keyed()).await.unwrap().run.id, first);
    assert_eq!(parts.plane.start_run(start("other")).await.unwrap_err().code().as_str(), "limit_reached");
    fixture.chaos.all().down(true);
    let unasked = parts.plane.start_run(start("other")).await.unwrap_err();
    assert_eq!((unasked.code().as_str(), unasked.code().status()), ("lock_unavailable", 503));
    assert!(unasked.retry_after().is_some());
}
