//! Finding 4 of the security review: only a job that the engine made for a step counts as the step's work.

use leasehold_plane::job::Parent;
use leasehold_plane::store::{DocumentKind, PlaneStore, Revision, WriteRequest};
use leasehold_plane::work::Executors;
use leasehold_plane::workflow::{Run, RunState, StartRunRequest, StepRun, StepStatus, parse};
use leasehold_plane::{Job, JobSpec, PlaneError, Work};
use serde_json::json;

use crate::fixture::{Fixture, ReplicaParts, pull_job};

const WORKFLOW: &str = "
name = \"w\"
[[step]]
id = \"build\"
pull = \"work\"
[[step]]
id = \"ask\"
needs = [\"build\"]
approval = \"roll out?\"
";

/// Writes a document past the plane's API, as an earlier version or another program could have.
async fn plant(fixture: &Fixture, kind: DocumentKind, id: &str, state: &'static str, body: String) {
    let revision = Revision {
        kind,
        id: id.to_owned(),
        state,
        due_in: None,
        index_key: "work".into(),
        owner: String::new(),
        key: None,
        body,
        event: "{}".into(),
    };
    fixture.memory.write(&WriteRequest::new(format!("planted-{id}"), revision)).await.unwrap();
}

fn job_body(id: &str, parent: Option<Parent>) -> String {
    serde_json::to_string(&Job::new(id.into(), JobSpec::new(Work::Pull), parent)).unwrap()
}

fn parent(run: &str, step: &str, attempt: u32) -> Parent {
    Parent { run: run.into(), step: step.into(), attempt }
}

async fn start_run(parts: &ReplicaParts) {
    parts.plane.apply_workflow(&parse("w", WORKFLOW).unwrap()).await.unwrap();
    let start = StartRunRequest { workflow: "w".into(), id: Some("R1".into()), ..StartRunRequest::default() };
    parts.plane.start_run(start).await.unwrap();
    while parts.deliver_due().await > 0 {}
}

#[tokio::test(start_paused = true)]
async fn finding_04_callers_cannot_use_the_ids_of_steps() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    start_run(&parts).await;
    let step = parts.plane.run("R1").await.unwrap().steps["build"].job.clone().unwrap();
    assert_eq!(step, "R1.build.1");
    for id in ["R2.build.1", "R1.ask.1", "acme:r.x.y.007"] {
        match parts.plane.submit(pull_job(id)).await.unwrap_err() {
            PlaneError::Invalid(invalid) => {
                assert_eq!(invalid.field, "id");
                assert!(invalid.to_string().contains("RUN.STEP.NUMBER"), "{invalid}");
            }
            other => panic!("{id}: {other}"),
        }
    }
    // The step's own job is not described: it is no submit's.
    let taken = parts.plane.submit(pull_job(&step)).await.unwrap_err();
    assert_eq!(taken.code().as_str(), "different_job");
    for id in ["backup.2026.11", "R1.build.x", "R1.build.", ".build.1", "R1..1", "v1.2.3", "a~1"] {
        assert!(!parts.plane.submit(pull_job(id)).await.unwrap().repeated, "{id}");
    }
    // Earlier versions allowed such ids: a retried submit of such a job still finds it.
    let old = serde_json::to_string(&Job::new("old.job.1".into(), pull_job("old.job.1"), None)).unwrap();
    plant(&fixture, DocumentKind::Job, "old.job.1", "PENDING", old).await;
    assert!(parts.plane.submit(pull_job("old.job.1")).await.unwrap().repeated);
}

#[tokio::test(start_paused = true)]
async fn finding_04_a_job_that_was_there_before_fails_the_step() {
    let of_others =
        [None, Some(parent("R2", "build", 1)), Some(parent("R1", "ask", 1)), Some(parent("R1", "build", 2))];
    for foreign in of_others {
        for state in ["SUCCEEDED", "PENDING"] {
            let fixture = Fixture::new();
            let parts = fixture.replica_parts("a", Executors::default());
            let body = job_body("R1.build.1", foreign.clone());
            plant(&fixture, DocumentKind::Job, "R1.build.1", state, body).await;
            start_run(&parts).await;
            let run = parts.plane.run("R1").await.unwrap();
            assert_eq!(run.state, RunState::Failed, "{foreign:?} {state}");
            let (build, ask) = (&run.steps["build"], &run.steps["ask"]);
            assert_eq!((build.status, ask.status), (StepStatus::Failed, StepStatus::Skipped));
            assert!(build.why.as_ref().unwrap().contains("R1.build.1"), "{build:?}");
            assert!(parts.plane.approvals(10).await.unwrap().is_empty(), "nobody is asked");
        }
    }
}

/// A run that an earlier version began: its first step runs under the id of that version.
async fn old_run(fixture: &Fixture, parts: &ReplicaParts, parent: Option<Parent>) -> Run {
    let mut run = Run::new("R1".into(), parse("w", WORKFLOW).unwrap(), "default".into(), json!(null));
    let mut step = StepRun::default();
    (step.status, step.attempt, step.job) = (StepStatus::Running, 1, Some("R1.build.1".into()));
    run.steps.insert("build".into(), step);
    plant(fixture, DocumentKind::Run, "R1", "RUNNING", serde_json::to_string(&run).unwrap()).await;
    plant(fixture, DocumentKind::Job, "R1.build.1", "SUCCEEDED", job_body("R1.build.1", parent)).await;
    let hold = parts.plane.locks().class("workflow").acquire("run:R1").await.unwrap().held().unwrap();
    let run = parts.engine.advance(&hold, "R1", &json!({"verb": "tick"})).await.unwrap();
    hold.release().await;
    run
}

#[tokio::test(start_paused = true)]
async fn finding_04_runs_in_progress_keep_their_steps_and_take_no_others() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let run = old_run(&fixture, &parts, Some(parent("R1", "build", 1))).await;
    assert_eq!(run.steps["build"].status, StepStatus::Done);
    assert_eq!(run.steps["ask"].job.as_deref(), Some("R1.ask.1"));
    // A replica of an earlier version computes the same id, so the step is never done twice.
    assert_eq!(run.job_id("build", 1), "R1.build.1");
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let run = old_run(&fixture, &parts, None).await;
    assert_eq!((run.state, run.steps["build"].status), (RunState::Failed, StepStatus::Failed));
}

#[tokio::test(start_paused = true)]
async fn finding_04_a_message_about_another_job_changes_nothing() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    start_run(&parts).await;
    plant(&fixture, DocumentKind::Job, "done", "SUCCEEDED", job_body("done", None)).await;
    let hold = parts.plane.locks().class("workflow").acquire("run:R1").await.unwrap().held().unwrap();
    let order = json!({"verb": "result", "step": "build", "attempt": 1, "job": "done"});
    let run = parts.engine.advance(&hold, "R1", &order).await.unwrap();
    hold.release().await;
    assert_eq!(run.steps["build"].status, StepStatus::Running);
}
