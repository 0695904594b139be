//! Finding 16 of the security review: what a command receives, and when it is over.

use std::path::Path;
use std::process::Command;

use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::job::Outcome;
use leasehold_plane::work::{Executors, exec::CommandExecutor};
use leasehold_plane::{Job, JobSpec, JobState, PlaneError, Work};
use serde_json::{Value, json};

use crate::fixture::{Fixture, pull_job};

fn shell_job(script: &str, argument: &str) -> JobSpec {
    let argv = ["sh", "-c", script, "job", argument].map(str::to_owned).to_vec();
    JobSpec { id: Some("a".into()), attempts: 1, ..JobSpec::new(Work::Exec(argv)) }
}

/// Runs the job's command to its end.
async fn run(spec: JobSpec, exec: CommandExecutor) -> Job {
    let fixture = Fixture::in_real_time();
    let parts = fixture.replica_parts("a", Executors::default().exec(Some(exec)));
    parts.plane.submit(spec).await.unwrap();
    parts.deliver_due().await;
    parts.plane.job("a").await.unwrap()
}

fn output(job: &Job) -> String {
    match &job.outcome {
        Some(Outcome::Done(done)) => done["output"].as_str().unwrap_or_default().to_owned(),
        other => panic!("{} {other:?}", job.state),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_16_payloads_beyond_a_variable_reach_the_command() {
    let script = "cat \"$LEASEHOLD_PAYLOAD_FILE\" | wc -c; echo \"${LEASEHOLD_PAYLOAD:-none}\" | wc -c; \
                  stat -Lc %a \"$LEASEHOLD_PAYLOAD_FILE\"; echo \"$LEASEHOLD_PAYLOAD_FILE\"";
    for (bytes, variable) in [(10, 13), (140 * 1024, 5), (200 * 1024, 5)] {
        let payload = Value::String("x".repeat(bytes));
        let job = run(JobSpec { payload, ..shell_job(script, "") }, CommandExecutor::default()).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.outcome);
        let said = output(&job);
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let (in_file, in_variable) = ((bytes + 2).to_string(), variable.to_string());
        assert_eq!(lines[..3], [in_file.as_str(), in_variable.as_str(), "400"], "{said}");
        assert!(!Path::new(lines[3]).exists(), "{said}");
    }
}

/// A replica that is killed removes nothing, so there must be nothing to remove.
#[tokio::test(flavor = "multi_thread")]
async fn finding_16_documents_of_a_command_are_in_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("payload");
    let script = "for file in \"$LEASEHOLD_PAYLOAD_FILE\" \"$LEASEHOLD_RESOURCES_FILE\"; do readlink \"$file\"; done; \
                  cat \"$LEASEHOLD_PAYLOAD_FILE\" > \"$1\"; \
                  sh -c 'echo x > \"$LEASEHOLD_PAYLOAD_FILE\"' 2>/dev/null || echo refused";
    let payload = json!({"a": "b"});
    let spec = JobSpec { payload, ..shell_job(script, path.to_str().unwrap()) };
    let said = output(&run(spec, CommandExecutor::default()).await);
    assert_eq!(said.matches("/memfd:").count(), 2, "{said}");
    assert!(said.contains("refused"), "the command cannot change it: {said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), r#"{"a":"b"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_16_a_command_that_cannot_run_is_refused() {
    let fixture = Fixture::in_real_time();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let long = |bytes: usize| "x".repeat(bytes);
    for argv in [
        vec![],
        vec![String::new()],
        vec!["echo".into(), long(128 * 1024)],
        vec!["echo".into(), long(100 * 1024), long(100 * 1024), long(100 * 1024)],
        vec![String::from("true"); 100 * 1024],
        vec!["echo".into(), "a\0b".into()],
    ] {
        let spec = JobSpec { id: Some("x".into()), ..JobSpec::new(Work::Exec(argv)) };
        match plane.submit(spec).await {
            Err(PlaneError::Invalid(invalid)) => assert_eq!(invalid.field, "work.exec"),
            other => panic!("{other:?}"),
        }
    }
    // What is accepted can run, together with the largest variables.
    let argv = ["true".into(), long(128 * 1024 - 1), long(100 * 1024)].to_vec();
    let payload = Value::String(long(95 * 1024));
    let spec = JobSpec { payload, id: Some("a".into()), attempts: 1, ..JobSpec::new(Work::Exec(argv)) };
    assert_eq!(run(spec, CommandExecutor::default()).await.state, JobState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_16_a_command_inherits_only_what_it_needs() {
    // Cargo and nextest set variables for this process, as an operator would set secrets.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let names = |job: &Job| -> Vec<String> {
        output(job).lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect()
    };
    let plain = names(&run(shell_job("env", ""), CommandExecutor::default()).await);
    let usual =
        ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "PWD", "SHLVL", "_", "OLDPWD"];
    for name in &plain {
        let known =
            usual.contains(&name.as_str()) || name.starts_with("LC_") || name.starts_with("LEASEHOLD_");
        assert!(known, "{name} is inherited: {plain:?}");
    }
    for name in ["PATH", "LEASEHOLD_JOB", "LEASEHOLD_FENCE", "LEASEHOLD_PAYLOAD", "LEASEHOLD_RESOURCES"] {
        assert!(plain.iter().any(|found| found == name), "{name} is missing: {plain:?}");
    }
    let more = CommandExecutor::default().pass_env(["CARGO_MANIFEST_DIR", "NOT_SET_ANYWHERE"]);
    let passed = names(&run(shell_job("env", ""), more).await);
    assert!(passed.iter().any(|name| name == "CARGO_MANIFEST_DIR"), "{passed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn finding_16_a_command_is_over_when_its_process_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // A process that left the command's session, environment and ancestors, and keeps its output open.
    let script = "setsid -f env -i sh -c 'echo $$ > \"$0\"; exec sleep 600' \"$1\"; \
                  until [ -s \"$1\" ]; do sleep 0.01; done; echo said";
    let job = run(shell_job(script, file.to_str().unwrap()), CommandExecutor::default()).await;
    let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let still_there = Path::new(&format!("/proc/{pid}")).exists();
    Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(still_there, "the leftover must outlive the job for this test");
    assert_eq!((job.state, output(&job).as_str()), (JobState::Succeeded, "said\n"));
}

#[tokio::test(start_paused = true)]
async fn finding_16_a_repair_keeps_to_the_payload_limit() {
    let fixture = Fixture::new();
    let plane = fixture.replica_parts("a", Executors::default()).plane;
    let asked = plane.submit(JobSpec { requires_approval: true, ..pull_job("j") }).await.unwrap().job;
    let verdict = DecisionRequest { by: "ann".into(), reason: "more".into(), snapshot: asked.snapshot() };
    match plane.repair("j", json!("x".repeat(257 * 1024)), &verdict).await.unwrap_err() {
        PlaneError::Invalid(invalid) => assert_eq!(invalid.field, "payload"),
        other => panic!("{other}"),
    }
    plane.repair("j", json!("x"), &verdict).await.unwrap();
}
