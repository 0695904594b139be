//! Finding 21 of the security review: what one definition and one start of a run cost is bounded.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_plane::store::{DocumentKind, PlaneStore, Revision, WriteRequest};
use leasehold_plane::work::Executors;
use leasehold_plane::workflow::{RunState, StartRunRequest, Step, StepStatus, StepWork, Workflow, parse};
use leasehold_plane::{JobState, PlaneError, Span};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture::Fixture;

const MAX_STEPS: usize = 200;
const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

fn step(id: String, needs: Vec<String>) -> Step {
    Step {
        id,
        needs,
        work: StepWork::Pull("work".into()),
        payload: Value::Null,
        resources: Vec::new(),
        requires_approval: false,
        attempts: None,
        backoff: None,
        timeout: None,
    }
}

fn workflow(steps: Vec<Step>) -> Workflow {
    Workflow { name: "w".into(), class: "workflow".into(), steps }
}

fn independent(steps: usize) -> Workflow {
    workflow((0..steps).map(|at| step(format!("s{at}"), Vec::new())).collect())
}

/// Each step needs the one after it in the file.
fn backward_chain(steps: usize) -> Workflow {
    let needs = |at: usize| (at + 1 < steps).then(|| format!("s{}", at + 1)).into_iter().collect();
    workflow((0..steps).map(|at| step(format!("s{at}"), needs(at))).collect())
}

fn file_of(workflow: &Workflow) -> String {
    let step =
        |step: &Step| format!("[[step]]\nid = {:?}\npull = \"work\"\nneeds = {:?}\n", step.id, step.needs);
    workflow.steps.iter().map(step).fold("name = \"w\"\n".to_owned(), |file, step| file + &step)
}

fn start(input: Value) -> StartRunRequest {
    StartRunRequest { workflow: "w".into(), id: Some("r".into()), input, ..StartRunRequest::default() }
}

/// A text whose JSON has this length.
fn text_of(bytes: usize) -> Value {
    json!("x".repeat(bytes - 2))
}

#[tokio::test(start_paused = true)]
async fn finding_21_a_definition_has_a_bounded_number_of_steps() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let refused = async |workflow: Workflow, parts: &[&str]| {
        let applied = plane.apply_workflow(&workflow).await.unwrap_err();
        assert_eq!(applied.code().as_str(), "invalid", "{applied}");
        let read = parse("w.toml", &file_of(&workflow)).unwrap_err().to_string();
        for told in [applied.to_string(), read] {
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
    };
    for full in [independent(MAX_STEPS), backward_chain(MAX_STEPS)] {
        let read = parse("w.toml", &file_of(&full)).unwrap();
        assert_eq!(read, full);
        plane.apply_workflow(&read).await.unwrap();
    }
    refused(independent(MAX_STEPS + 1), &["step", "there are 201", "at most 200"]).await;
    // The line of the first step that is too many.
    let line = parse("w.toml", &file_of(&independent(MAX_STEPS + 1))).unwrap_err().to_string();
    assert!(line.contains(&format!("w.toml:{}", 2 + 4 * MAX_STEPS)), "{line}");
    refused(workflow(Vec::new()), &["step", "there is none"]).await;
    let needs = |needs: Vec<&str>| {
        let needs = needs.into_iter().map(str::to_owned).collect();
        workflow(vec![step("a".into(), Vec::new()), step("b".into(), needs)])
    };
    refused(needs(vec!["a"; MAX_STEPS + 1]), &["needs", "names 201 steps", "at most 200"]).await;
    refused(needs(vec!["a", "a"]), &["needs", "\"a\" more than once"]).await;
    refused(needs(vec!["b"]), &["needs", "\"b\" needs itself"]).await;
    refused(workflow(vec![step("a".into(), Vec::new()); 2]), &["id", "of another step too"]).await;
    refused(workflow(vec![step("a.b".into(), Vec::new())]), &["id", "must not contain a dot"]).await;
    refused(workflow(vec![step("s".repeat(600), Vec::new())]), &["id", "512"]).await;
}

/// With the check that compared all steps with all others in each pass, this took hours.
#[test]
fn finding_21_a_definition_is_checked_in_linear_time() {
    let mut long = backward_chain(50_000);
    assert!(long.find_cycle().is_none());
    assert_eq!(long.downstream("s49999").len(), 50_000);
    long.steps[49_999].needs.push("s25000".into());
    let on_cycle = long.find_cycle().unwrap().id[1..].parse::<usize>().unwrap();
    assert!((25_000..50_000).contains(&on_cycle), "{on_cycle}");
}

#[tokio::test(start_paused = true)]
async fn finding_21_a_stored_definition_beyond_the_limit_goes_on() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let stored = independent(MAX_STEPS + 50);
    let revision = Revision {
        kind: DocumentKind::Workflow,
        id: "w".into(),
        state: "ACTIVE",
        due_in: None,
        index_key: String::new(),
        owner: String::new(),
        key: None,
        body: serde_json::to_string(&stored).unwrap(),
        event: "{}".into(),
    };
    fixture.memory.write(&WriteRequest::new("old".into(), revision)).await.unwrap();
    assert_eq!(parts.plane.workflow("w").await.unwrap(), stored);
    parts.plane.start_run(start(json!(1))).await.unwrap();
    parts.deliver_due().await;
    let run = parts.plane.run("r").await.unwrap();
    assert_eq!(run.state, RunState::Running);
    assert!(run.steps.values().all(|step| step.status == StepStatus::Running));
    assert_eq!(parts.plane.jobs(&[], None, 1000).await.unwrap().len(), MAX_STEPS + 50);
}

#[tokio::test(start_paused = true)]
async fn finding_21_a_run_stores_a_bounded_number_of_copies_of_its_input() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let plane = &parts.plane;
    let refused = async |input: Value, parts: &[&str]| {
        let PlaneError::Invalid(refused) = plane.start_run(start(input)).await.unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(refused.field, "input");
        let told = refused.to_string();
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert!(plane.runs(&[], 10).await.unwrap().is_empty());
    };
    // 64 copies of the largest payload are 16 MiB.
    let mut many = independent(65);
    plane.apply_workflow(&many).await.unwrap();
    refused(text_of(MAX_PAYLOAD_BYTES), &["262144 bytes", "65 steps", "at most 16777216 bytes"]).await;
    refused(text_of(MAX_PAYLOAD_BYTES + 1), &["262145 bytes", "at most 262144"]).await;
    // Steps without a copy do not count.
    many.steps[0].payload = json!("own");
    many.steps.push(Step { work: StepWork::Approval("go?".into()), ..step("ask".into(), Vec::new()) });
    many.steps.push(Step {
        work: StepWork::Delay(Span(Duration::from_secs(3600))),
        ..step("wait".into(), Vec::new())
    });
    plane.apply_workflow(&many).await.unwrap();
    plane.start_run(start(text_of(MAX_PAYLOAD_BYTES))).await.unwrap();
    parts.deliver_due().await;
    let jobs = plane.jobs(&[JobState::Pending, JobState::ApprovalRequired], None, 100).await.unwrap();
    let copies = jobs.iter().filter(|job| job.spec.payload == text_of(MAX_PAYLOAD_BYTES)).count();
    assert_eq!((jobs.len(), copies), (66, 64));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_leaves_no_room_for_its_jobs_is_refused() {
    let fixture = Fixture::new();
    let parts = fixture.replica_parts("a", Executors::default());
    let step = step("s".repeat(20), Vec::new());
    parts.plane.apply_workflow(&workflow(vec![step])).await.unwrap();
    // `job:`, the id, the step, the attempt and two dots are 512 bytes.
    let longest = 512 - "job:".len() - 20 - "100".len() - 2;
    for (length, fits) in [(longest, true), (longest + 1, false)] {
        let start = StartRunRequest { id: Some("r".repeat(length)), ..start(Value::Null) };
        match parts.plane.start_run(start).await {
            Ok(_) => assert!(fits, "{length}"),
            Err(refused) => {
                assert!(!fits && refused.to_string().contains("id"), "{length}: {refused}");
                assert!(refused.to_string().contains("too long"), "{refused}");
            }
        }
    }
}

/// The steps that a step leads to, by the definition of it.
fn reachable(workflow: &Workflow, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for step in &workflow.steps {
            if step.needs.iter().any(|need| need == from || found.contains(need)) {
                found.insert(step.id.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Any graph, also with cycles.
fn graph() -> impl Strategy<Value = Workflow> {
    prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.2), 8), 1..8).prop_map(|rows| {
        let count = rows.len();
        let needs = |row: &Vec<bool>| (0..count).filter(|at| row[*at]).map(|at| format!("s{at}")).collect();
        workflow(rows.iter().enumerate().map(|(at, row)| step(format!("s{at}"), needs(row))).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cycles_and_dependents_are_found_in_any_graph(workflow in graph()) {
        let cyclic = |step: &Step| reachable(&workflow, &step.id).contains(&step.id);
        let found = workflow.find_cycle();
        prop_assert_eq!(found.is_some(), workflow.steps.iter().any(cyclic));
        prop_assert!(found.is_none_or(cyclic), "{:?} is not on a cycle", found);
        for step in &workflow.steps {
            let all: BTreeSet<String> = workflow.downstream(&step.id).into_iter().map(str::to_owned).collect();
            let mut expected = reachable(&workflow, &step.id);
            expected.insert(step.id.clone());
            prop_assert_eq!(all, expected);
        }
    }
}
