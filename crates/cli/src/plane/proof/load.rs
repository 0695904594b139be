//! The work: jobs, runs of workflows, and people who approve.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::clock::{BootClock, ClockExt};
use leasehold_plane::approval::Verdict;
use leasehold_plane::workflow::{RunState, StartRun, parse};
use leasehold_plane::{JobSpec, JobState, Plane, PlaneError, Work};

use super::ProofArgs;
use super::stage::Stage;

/// How often the approvers look.
const LOOK: Duration = Duration::from_millis(200);
/// How many people approve at once, each everything they see.
const APPROVERS: usize = 2;

pub(super) struct Load<'a> {
    plane: &'a Plane,
    pub(super) jobs: usize,
    pub(super) runs: usize,
    script: String,
    effects: std::path::PathBuf,
    /// Runs are chains of this many steps instead.
    chain: Option<usize>,
    done: AtomicBool,
}

impl<'a> Load<'a> {
    pub(super) fn new(args: &ProofArgs, stage: &Stage, plane: &'a Plane) -> Self {
        // One line a start, one an end, each a single write.
        let script = format!(
            "echo begin $LEASEHOLD_JOB $LEASEHOLD_ATTEMPT $LEASEHOLD_FENCE >> {0}; sleep {1}; \
             echo end $LEASEHOLD_JOB $LEASEHOLD_ATTEMPT $LEASEHOLD_FENCE >> {0}",
            stage.effects().display(),
            args.work.as_secs_f64(),
        );
        Self {
            plane,
            jobs: args.jobs as usize,
            runs: args.runs as usize,
            script,
            effects: stage.effects(),
            // Long enough that there is work for the whole of it.
            chain: args
                .outage
                .map(|outage| 10 + usize::try_from(outage.as_secs()).unwrap_or(0) * 2),
            done: AtomicBool::new(false),
        }
    }

    /// Where each piece of work has written its lines.
    pub(super) fn effects(&self) -> &std::path::Path {
        &self.effects
    }

    fn exec(&self) -> Vec<String> {
        vec!["sh".into(), "-c".into(), self.script.clone()]
    }

    /// How many steps a run has, and how many of them are jobs.
    pub(super) fn per_run(&self) -> (usize, usize) {
        self.chain.map_or((6, 5), |steps| (steps, steps))
    }

    fn workflow(&self, class: &str) -> String {
        match self.chain {
            Some(steps) => self.chain_of(class, steps),
            None => self.diamond(class),
        }
    }

    /// One command after the other: nothing in it waits for a person or a loop, both of which are fail-closed.
    fn chain_of(&self, class: &str, steps: usize) -> String {
        let exec = serde_json::json!(self.exec()).to_string();
        let mut text = format!("name = \"proof-{class}\"\nclass = \"{class}\"\n");
        for step in 0..steps {
            text += &format!("[[step]]\nid = \"s{step}\"\nexec = {exec}\n");
            if step > 0 {
                text += &format!("needs = [\"s{}\"]\n", step - 1);
            }
        }
        text
    }

    /// A diamond with a delay and an approval: build, two tests side by side, sign-off, a pause, ship.
    fn diamond(&self, class: &str) -> String {
        let exec = serde_json::json!(self.exec()).to_string();
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

    /// Submits everything; whatever is not answered is submitted again, under the same name.
    pub(super) async fn submit(&self) -> anyhow::Result<()> {
        let classes = ["workflow", "workflow-critical"];
        for class in classes {
            let workflow = parse("proof.toml", &self.workflow(class))?;
            insist(async || self.plane.apply_workflow(&workflow).await).await?;
        }
        let (mut jobs, mut runs) = (0, 0);
        while jobs < self.jobs || runs < self.runs {
            // In step, so that both are there while things break.
            if jobs * self.runs.max(1) <= runs * self.jobs && jobs < self.jobs || runs >= self.runs {
                let spec = JobSpec {
                    id: Some(format!("job-{jobs:05}")),
                    ..JobSpec::new(Work::Exec(self.exec()))
                };
                insist(async || self.plane.submit(spec.clone()).await).await?;
                jobs += 1;
            } else {
                let class = classes.get(runs % 2).copied().unwrap_or("workflow");
                let start = StartRun {
                    workflow: format!("proof-{class}"),
                    id: Some(format!("run-{runs:05}")),
                    ..StartRun::default()
                };
                insist(async || self.plane.start(start.clone()).await).await?;
                runs += 1;
            }
        }
        Ok(())
    }

    /// Approves what waits, until nothing is left to be done.
    pub(super) async fn approve_until_done(&self) -> anyhow::Result<()> {
        loop {
            for number in 0..APPROVERS {
                self.approve(&format!("approver-{number}")).await;
            }
            if self.ended().await.unwrap_or(false) {
                self.done.store(true, Ordering::SeqCst);
                return Ok(());
            }
            BootClock.sleep(LOOK).await;
        }
    }

    async fn approve(&self, by: &str) {
        let waiting = self.plane.approvals(1000).await.unwrap_or_default();
        let verdict = Verdict {
            by: by.to_owned(),
            reason: "part of the drill".to_owned(),
            snapshot: None,
        };
        for job in waiting {
            // A conflict is another approver's yes; an error comes round again.
            let _ = self.plane.approve(&job.id, &verdict).await;
        }
    }

    async fn ended(&self) -> Result<bool, PlaneError> {
        let open: u64 = self
            .plane
            .tally()
            .await?
            .into_iter()
            .filter(|(state, _)| !state.ended())
            .map(|(_, count)| count)
            .sum();
        let running = [RunState::Pending, RunState::Running];
        Ok(open == 0 && self.plane.runs(&running, 1).await?.is_empty())
    }

    /// Ends when the first jobs are done.
    pub(super) async fn under_way(&self) {
        loop {
            let tally = self.plane.tally().await.unwrap_or_default();
            if tally
                .iter()
                .any(|(state, count)| *state == JobState::Succeeded && *count > 0)
            {
                return;
            }
            BootClock.sleep(LOOK).await;
        }
    }

    pub(super) fn done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
}

/// Asks until there is an answer: stores may be down for a while.
async fn insist<T>(ask: impl AsyncFn() -> Result<T, PlaneError>) -> anyhow::Result<T> {
    loop {
        match ask().await {
            Err(PlaneError::Store(_) | PlaneError::Lock(_) | PlaneError::Busy { .. }) => {
                BootClock.sleep(LOOK).await;
            }
            other => return Ok(other?),
        }
    }
}
