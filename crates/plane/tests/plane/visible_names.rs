//! Finding 26 of the security review: new jobs and runs have visible names, and what was stored before still ends.

use std::time::Duration;

use leasehold_plane::scheduler::ClaimRequest;
use leasehold_plane::store::{
    DocumentKind, Message, PlaneStore, Queue, Revision, WriteRequest, WriteResponse,
};
use leasehold_plane::work::Executors;
use leasehold_plane::workflow::{StartRunRequest, parse};
use leasehold_plane::{Job, JobSpec, JobState, PlaneError};

use crate::fixture::{Fixture, pull_job};

/// Stores a job as versions did that did not look for invisible characters.
async fn store_job(store: &dyn PlaneStore, spec: JobSpec) {
    let job = Job::new(spec.id.clone().unwrap(), spec, None);
    let revision = Revision {
        kind: DocumentKind::Job,
        id: job.id.clone(),
        state: "PENDING",
        due_in: None,
        index_key: job.spec.topic.clone(),
        key: None,
        owner: String::new(),
        body: serde_json::to_string(&job).unwrap(),
        event: "{}".into(),
    };
    let message = Message {
        queue: Queue::Jobs,
        id: format!("go:{}:1", job.id),
        document_id: job.id.clone(),
        body: r#"{"verb":"go"}"#.into(),
        due_in: Duration::ZERO,
    };
    let write =
        WriteRequest { messages: vec![message], ..WriteRequest::new(format!("old-{}", job.id), revision) };
    assert!(matches!(store.write(&write).await.unwrap(), WriteResponse::Applied { .. }));
}

fn field_of<T: std::fmt::Debug>(refused: Result<T, PlaneError>) -> String {
    match refused.unwrap_err() {
        PlaneError::Invalid(invalid) => {
            assert!(invalid.to_string().contains("U+FE0F"), "{invalid}");
            invalid.field
        }
        other => other.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn finding_26_new_jobs_and_runs_have_visible_names() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let hidden = "a\u{fe0f}b".to_owned();
    let bad = [
        ("id", pull_job(&hidden)),
        ("topic", JobSpec { topic: hidden.clone(), ..pull_job("a") }),
        ("tenant", JobSpec { id: None, tenant: hidden.clone(), ..pull_job("a") }),
        ("resources", JobSpec { resources: vec![hidden.clone()], ..pull_job("a") }),
    ];
    for (field, spec) in bad {
        assert_eq!(field_of(plane.submit(spec).await), field);
    }
    let text = "name = \"w\"\n[[step]]\nid = \"s\"\npull = \"work\"\nresources = [\"r\"]\n";
    let workflow = parse("w", text).unwrap();
    plane.apply_workflow(&workflow).await.unwrap();
    for (word, field) in
        [("\"w\"", "name"), ("\"s\"", "step[0].id"), ("\"work\"", "topic"), ("\"r\"", "resources")]
    {
        let refused = parse("w", &text.replace(word, &format!("\"{hidden}\""))).unwrap_err().to_string();
        assert!(refused.contains("U+FE0F") && refused.contains(field), "{field}: {refused}");
    }
    let mut renamed = workflow.clone();
    renamed.name.clone_from(&hidden);
    assert_eq!(field_of(plane.apply_workflow(&renamed).await), "name");
    let mut renamed = workflow;
    renamed.steps[0].id.clone_from(&hidden);
    assert_eq!(field_of(plane.apply_workflow(&renamed).await), "step.id");
    let start = || StartRunRequest { workflow: "w".into(), ..StartRunRequest::default() };
    assert_eq!(field_of(plane.start_run(StartRunRequest { org: hidden.clone(), ..start() }).await), "org");
    assert_eq!(field_of(plane.start_run(StartRunRequest { id: Some(hidden), ..start() }).await), "id");
}

#[tokio::test(start_paused = true)]
async fn finding_26_a_stored_job_with_an_invisible_name_runs_and_can_be_cancelled() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let (runs, cancelled) = ("old\u{fe0f}runs", "old\u{fe0f}cancelled");
    for id in [runs, cancelled] {
        store_job(&*fixture.memory, JobSpec { resources: vec![format!("res-{id}")], ..pull_job(id) }).await;
    }
    parts.plane.cancel(cancelled, "not needed").await.unwrap();
    parts.deliver_due().await;
    assert_eq!(parts.plane.job(cancelled).await.unwrap().state, JobState::Cancelled);
    let claimed = parts.scheduler.claim(&ClaimRequest::new("work", "w")).await.unwrap().unwrap();
    assert_eq!(claimed.job.id, runs);
    parts.scheduler.report(&claimed.claim, Ok(serde_json::json!(1))).await.unwrap();
    assert_eq!(parts.plane.job(runs).await.unwrap().state, JobState::Succeeded);
}
