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
                  stat -c %a \"$LEASEHOLD_PAYLOAD_FILE\"; echo \"$LEASEHOLD_PAYLOAD_FILE\"";
    for (bytes, variable) in [(10, 13), (140 * 1024, 5), (200 * 1024, 5)] {
        let payload = Value::String("x".repeat(bytes));
        let job = run(JobSpec { payload, ..shell_job(script, "") }, CommandExecutor::default()).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.outcome);
        let said = output(&job);
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let (in_file, in_variable) = ((bytes + 2).to_string(), variable.to_string());
        assert_eq!(lines[..3], [in_file.as_str(), in_variable.as_str(), "600"], "{said}");
        assert!(!Path::new(lines[3]).exists(), "{said}");
    }
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
