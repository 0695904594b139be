//! The workload of the drill: jobs, workflow runs and approvals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, ClockExt};
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::workflow::{RunState, StartRunRequest, parse};
use leasehold_plane::{JobSpec, JobState, Plane, PlaneError, Work};

use super::PlaneDrillOptions;
use super::testbed::PlaneTestbed;

/// Between two reads of the plane.
const PLANE_POLL_INTERVAL: Duration = Duration::from_millis(200);
// Approvers that decide at the same time; each approves everything, so that conflicts occur.
const APPROVERS: usize = 2;

pub(super) struct Workload<'a> {
    plane: &'a Plane,
    pub(super) jobs: usize,
    pub(super) runs: usize,
    script: String,
    effects: std::path::PathBuf,
    /// If set, runs are chains of this many steps.
    chain: Option<usize>,
    done: AtomicBool,
}

impl<'a> Workload<'a> {
    pub(super) fn new(options: &PlaneDrillOptions, testbed: &PlaneTestbed, plane: &'a Plane) -> Self {
        // Each line is a single appending write, so lines of several processes do not mix.
        let script = format!(
            "echo begin $LEASEHOLD_JOB $LEASEHOLD_ATTEMPT $LEASEHOLD_FENCE >> {0}; sleep {1}; \
             echo end $LEASEHOLD_JOB $LEASEHOLD_ATTEMPT $LEASEHOLD_FENCE >> {0}",
            testbed.effects_file().display(),
            options.work.as_secs_f64(),
        );
        Self {
            plane,
            jobs: options.jobs as usize,
            runs: options.runs as usize,
            script,
            effects: testbed.effects_file(),
            // Long enough that work is left for the whole outage.
            chain: options.outage.map(|outage| 10 + usize::try_from(outage.as_secs()).unwrap_or(0) * 2),
            done: AtomicBool::new(false),
        }
    }

    /// The file to which each job appends its start and end.
    pub(super) fn effects(&self) -> &std::path::Path {
        &self.effects
    }

    fn exec_argv(&self) -> Vec<String> {
        vec!["sh".into(), "-c".into(), self.script.clone()]
    }

    /// The number of steps of a run, and how many of them are jobs.
    pub(super) fn steps_and_jobs_per_run(&self) -> (usize, usize) {
        self.chain.map_or((6, 5), |steps| (steps, steps))
    }

    fn workflow_text(&self, class: &str) -> String {
        match self.chain {
            Some(steps) => self.chain_workflow(class, steps),
            None => self.diamond_workflow(class),
        }
    }

    /// A chain of commands.
    fn chain_workflow(&self, class: &str, steps: usize) -> String {
        // Without approvals and delays: their loops are fail-closed and would stop in an outage.
        let exec = serde_json::json!(self.exec_argv()).to_string();
        let mut text = format!("name = \"proof-{class}\"\nclass = \"{class}\"\n");
        for step in 0..steps {
            text += &format!("[[step]]\nid = \"s{step}\"\nexec = {exec}\n");
            if step > 0 {
                text += &format!("needs = [\"s{}\"]\n", step - 1);
            }
        }
        text
    }

    /// A diamond with a delay and an approval: build, two parallel tests, sign-off, delay, ship.
    fn diamond_workflow(&self, class: &str) -> String {
        let exec = serde_json::json!(self.exec_argv()).to_string();
        format!(
            "name = \"proof-{class}\"\nclass = \"{class}\"\n\
             [[step]]\nid = \"build\"\nexec = {exec}\n\
             [[step]]\nid = \"test-a\"\nneeds = [\"build\"]\nexec = {exec}\n\
             [[step]]\nid = \"test-b\"\nneeds = [\"build\"]\nexec = {exec}\n\
             [[step]]\nid = \"sign-off\"\nneeds = [\"test-a\", \"test-b\"]\napproval = \"May it go live?\"\n\
             [[step]]\nid = \"soak\"\nneeds = [\"sign-off\"]\ndelay = \"300ms\"\n\
             [[step]]\nid = \"ship\"\nneeds = [\"soak\"]\nexec = {exec}\n"
        )
    }

    /// Submits everything. A request without a response is repeated with the same id.
    pub(super) async fn submit(&self) -> anyhow::Result<()> {
        let classes = ["workflow", "workflow-critical"];
        for class in classes {
            let workflow = parse("proof.toml", &self.workflow_text(class))?;
            retry_until_answered(async || self.plane.apply_workflow(&workflow).await).await?;
        }
        let (mut jobs, mut runs) = (0, 0);
        while jobs < self.jobs || runs < self.runs {
            // Interleaved, so that jobs and runs both exist while faults are injected.
            if jobs * self.runs.max(1) <= runs * self.jobs && jobs < self.jobs || runs >= self.runs {
                let spec = JobSpec {
                    id: Some(format!("job-{jobs:05}")),
                    ..JobSpec::new(Work::Exec(self.exec_argv()))
                };
                retry_until_answered(async || self.plane.submit(spec.clone()).await).await?;
                jobs += 1;
            } else {
                let class = classes.get(runs % 2).copied().unwrap_or("workflow");
                let start = StartRunRequest {
                    workflow: format!("proof-{class}"),
                    id: Some(format!("run-{runs:05}")),
                    ..StartRunRequest::default()
                };
                retry_until_answered(async || self.plane.start_run(start.clone()).await).await?;
                runs += 1;
            }
        }
        Ok(())
    }

    /// Approves waiting jobs until all work has ended.
    pub(super) async fn approve_until_done(&self) -> anyhow::Result<()> {
        loop {
            for number in 0..APPROVERS {
                self.approve_waiting(&format!("approver-{number}")).await;
            }
            if self.all_ended().await.unwrap_or(false) {
                self.done.store(true, Ordering::SeqCst);
                return Ok(());
            }
            BootClock.sleep(PLANE_POLL_INTERVAL).await;
        }
    }

    async fn approve_waiting(&self, by: &str) {
        let waiting = self.plane.approvals(1000).await.unwrap_or_default();
        for job in waiting {
            let verdict = DecisionRequest {
                by: by.to_owned(),
                reason: "part of the drill".to_owned(),
                snapshot: job.snapshot(),
            };
            // A conflict means that the other approver was first; an error is retried in the next round.
            let _ = self.plane.approve(&job.id, &verdict).await;
        }
    }

    async fn all_ended(&self) -> Result<bool, PlaneError> {
        let open: u64 = self
            .plane
            .count_by_state()
            .await?
            .into_iter()
            .filter(|(state, _)| !state.is_terminal())
            .map(|(_, count)| count)
            .sum();
        let running = [RunState::Pending, RunState::Running];
        Ok(open == 0 && self.plane.runs(&running, 1).await?.is_empty())
    }

    /// Waits until the first job has succeeded.
    pub(super) async fn wait_until_started(&self) {
        loop {
            let tally = self.plane.count_by_state().await.unwrap_or_default();
            if tally.iter().any(|(state, count)| *state == JobState::Succeeded && *count > 0) {
                return;
            }
            BootClock.sleep(PLANE_POLL_INTERVAL).await;
        }
    }

    pub(super) fn done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
}

/// Repeats a call until the store responds: the drill takes stores down on purpose.
async fn retry_until_answered<T>(ask: impl AsyncFn() -> Result<T, PlaneError>) -> anyhow::Result<T> {
    loop {
        match ask().await {
            Err(PlaneError::Store(_) | PlaneError::Lock(_) | PlaneError::Busy { .. }) => {
                BootClock.sleep(PLANE_POLL_INTERVAL).await;
            }
            other => return Ok(other?),
        }
    }
}
