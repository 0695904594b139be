//! Advances a run as a pure function, so tests can try every history of results, repetitions and delays.
//!
//! ```text
//! Progress::new(run) -> apply_input(input)* -> finish() -> RunChange { run, jobs, cancel_jobs, wake_in, … }
//! ```

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::definition::StepWork;
use super::run::{Run, RunState, StepRun, StepStatus};
use crate::job::{Job, Parent};
use crate::store::memory::add_to_millis;

/// An input to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunInput {
    /// The run begins.
    Start,
    /// The job of a step has ended.
    Result {
        /// The step's id.
        step: String,
        /// The attempt that ended; a result of an earlier attempt is ignored.
        attempt: u32,
        /// The reason of a failure; `None` for success.
        failed: Option<String>,
    },
    /// Time has passed.
    Tick,
    /// A client cancels the run.
    Cancel {
        /// The client's reason.
        why: String,
    },
    /// A client runs an ended run again, from a step on.
    Rerun {
        /// The first step to run again; all steps that depend on it follow.
        from: String,
    },
}

/// Why an input changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoredInput {
    /// The run has ended.
    RunEnded,
    /// The step has ended already, so the result is a repetition.
    StepEnded {
        /// The step's id.
        step: String,
    },
    /// The result belongs to an earlier attempt of the step.
    StaleAttempt {
        /// The step's id.
        step: String,
    },
    /// The run has no such step.
    NoSuchStep {
        /// The step id that was given.
        step: String,
    },
    /// The run has not ended and cannot be rerun.
    StillRunning,
}

/// A run between two versions: inputs are applied, nothing is written yet.
#[derive(Debug)]
pub struct Progress {
    run: Run,
    changed_steps: Map<String, Value>,
    cancel_jobs: Vec<String>,
    reasons: Vec<String>,
}

/// The change of a run, to be written in one step.
#[derive(Debug)]
pub struct RunChange {
    /// The run after the change.
    pub run: Run,
    /// Jobs that this write creates.
    pub jobs: Vec<Job>,
    /// Ids of jobs that this write requests to cancel.
    pub cancel_jobs: Vec<String>,
    /// Time until the earliest delay step is over.
    pub wake_in: Option<Duration>,
    /// The steps that changed, with their new status, for the event.
    pub changed_steps: Map<String, Value>,
    /// The reasons of the inputs, for the event.
    pub reason: String,
}

impl Progress {
    /// Starts from the run as read.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self { run, changed_steps: Map::new(), cancel_jobs: Vec::new(), reasons: Vec::new() }
    }

    /// The run with the inputs so far.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Applies one input.
    ///
    /// # Errors
    /// The input changes nothing, for this reason.
    pub fn apply_input(&mut self, input: &RunInput) -> Result<(), IgnoredInput> {
        match input {
            RunInput::Start => self.mark_running("started"),
            RunInput::Tick => self.mark_running("time has passed"),
            RunInput::Result { step, attempt, failed } => {
                self.apply_result(step, *attempt, failed.as_deref())
            }
            RunInput::Cancel { why } => self.cancel(why),
            RunInput::Rerun { from } => self.rerun(from),
        }
    }

    fn mark_running(&mut self, why: &str) -> Result<(), IgnoredInput> {
        if self.run.state.is_terminal() {
            return Err(IgnoredInput::RunEnded);
        }
        if self.run.state == RunState::Pending {
            self.run.state = RunState::Running;
        }
        self.reasons.push(why.to_owned());
        Ok(())
    }

    fn apply_result(&mut self, step: &str, attempt: u32, failed: Option<&str>) -> Result<(), IgnoredInput> {
        let named = || step.to_owned();
        let Some(at) = self.run.steps.get(step) else {
            return Err(IgnoredInput::NoSuchStep { step: named() });
        };
        if at.attempt != attempt {
            return Err(IgnoredInput::StaleAttempt { step: named() });
        }
        // Checked before the run's state: a repeated result counts as one also after the run has ended.
        if matches!(at.status, StepStatus::Done | StepStatus::Failed) {
            return Err(IgnoredInput::StepEnded { step: named() });
        }
        if self.run.state.is_terminal() || at.status != StepStatus::Running {
            return Err(IgnoredInput::RunEnded);
        }
        let (status, why) = match failed {
            None => (StepStatus::Done, None),
            Some(why) => (StepStatus::Failed, Some(why.to_owned())),
        };
        self.reasons.push(format!("step {step} ended"));
        self.set_status(step, status, why);
        Ok(())
    }

    fn cancel(&mut self, why: &str) -> Result<(), IgnoredInput> {
        if self.run.state.is_terminal() {
            return Err(IgnoredInput::RunEnded);
        }
        let open: Vec<_> = self
            .run
            .steps
            .iter()
            .filter(|(_, step)| !step.status.is_terminal())
            .map(|(id, step)| (id.clone(), step.status, step.job.clone()))
            .collect();
        for (id, status, job) in open {
            // Only a running step has a job to cancel; a waiting or delayed one has none.
            if status == StepStatus::Running {
                self.cancel_jobs.extend(job);
            }
            self.set_status(&id, StepStatus::Cancelled, Some(why.to_owned()));
        }
        self.run.state = RunState::Cancelled;
        self.reasons.push(format!("cancelled: {why}"));
        Ok(())
    }

    fn rerun(&mut self, from: &str) -> Result<(), IgnoredInput> {
        if self.run.workflow.step(from).is_none() {
            return Err(IgnoredInput::NoSuchStep { step: from.to_owned() });
        }
        if !self.run.state.is_terminal() {
            return Err(IgnoredInput::StillRunning);
        }
        let again: Vec<_> = self.run.workflow.downstream(from).into_iter().map(str::to_owned).collect();
        for id in again {
            self.set_status(&id, StepStatus::Waiting, None);
        }
        self.run.state = RunState::Running;
        self.reasons.push(format!("rerun from {from}"));
        Ok(())
    }

    fn set_status(&mut self, step: &str, status: StepStatus, why: Option<String>) {
        let Some(at) = self.run.steps.get_mut(step) else {
            return;
        };
        at.status = status;
        at.why = why;
        at.due = None;
        self.changed_steps.insert(step.to_owned(), json!({"to": status, "attempt": at.attempt}));
    }

    /// Begins all steps that can begin, ends the run if all steps have ended, and returns the change.
    #[must_use]
    pub fn finish(mut self) -> RunChange {
        let mut jobs = Vec::new();
        if self.run.state == RunState::Running {
            // The end of one step can let the next begin, so passes repeat until nothing changes.
            while self.advance_steps(&mut jobs) {}
            self.end_if_done();
        }
        let now = self.run.now;
        let dues = self.run.steps.values().filter_map(|step| step.due);
        let wake_in = dues.min().map(|due| Duration::from_millis(due.saturating_sub(now)));
        RunChange {
            wake_in: wake_in.filter(|_| !self.run.state.is_terminal()),
            jobs,
            cancel_jobs: self.cancel_jobs,
            changed_steps: self.changed_steps,
            reason: self.reasons.join("; "),
            run: self.run,
        }
    }

    fn advance_steps(&mut self, jobs: &mut Vec<Job>) -> bool {
        let mut moved = false;
        for step in self.run.workflow.steps.clone() {
            let Some(at) = self.run.steps.get(&step.id).cloned() else {
                continue;
            };
            let of = |need: &String| {
                self.run
                    .steps
                    .get(need)
                    // An unknown need counts as skipped: a definition without that step can never satisfy it.
                    .map_or(StepStatus::Skipped, |step| step.status)
            };
            let needs: Vec<_> = step.needs.iter().map(of).collect();
            match at.status {
                StepStatus::Delayed if at.due.is_some_and(|due| due <= self.run.now) => {
                    self.set_status(&step.id, StepStatus::Done, None);
                }
                StepStatus::Waiting if needs.iter().all(|need| *need == StepStatus::Done) => {
                    jobs.extend(self.begin_step(&step.id, &step.work, at));
                }
                StepStatus::Waiting
                    if needs.iter().any(|need| need.is_terminal() && *need != StepStatus::Done) =>
                {
                    self.set_status(&step.id, StepStatus::Skipped, Some("what it needs was not done".into()));
                }
                _ => continue,
            }
            moved = true;
        }
        moved
    }

    fn begin_step(&mut self, id: &str, work: &StepWork, at: StepRun) -> Option<Job> {
        // A new number for each begin, so results of the job before a rerun are recognised as stale.
        let attempt = at.attempt + 1;
        let job = self.job(id, attempt);
        let now = self.run.now;
        let entry = self.run.steps.get_mut(id)?;
        *entry = StepRun {
            status: StepStatus::Running,
            attempt,
            job: job.as_ref().map(|job| job.id.clone()),
            due: None,
            why: None,
        };
        if let StepWork::Delay(span) = work {
            entry.status = StepStatus::Delayed;
            entry.due = Some(add_to_millis(now, span.0));
        }
        self.changed_steps.insert(id.to_owned(), json!({"to": entry.status, "attempt": attempt}));
        job
    }

    fn job(&self, id: &str, attempt: u32) -> Option<Job> {
        job_of_attempt(&self.run, id, attempt)
    }

    fn end_if_done(&mut self) {
        if !self.run.steps.values().all(|step| step.status.is_terminal()) {
            return;
        }
        let failed = self.run.steps.values().any(|step| step.status != StepStatus::Done);
        self.run.state = if failed { RunState::Failed } else { RunState::Succeeded };
        self.reasons.push("every step has ended".into());
    }
}

/// The job of one attempt of a step. The same arguments always give the same job.
pub(crate) fn job_of_attempt(run: &Run, step: &str, attempt: u32) -> Option<Job> {
    let mut spec = run.workflow.step(step)?.job_spec(&run.workflow.class, &run.org)?;
    let id = run.job_id(step, attempt);
    // The id follows from run, step and attempt, so a repeated begin creates no second job.
    spec.id = Some(id.clone());
    spec.labels.insert("run".into(), run.id.clone());
    if spec.payload.is_null() {
        spec.payload = run.input.clone();
    }
    let parent = Parent { run: run.id.clone(), step: step.to_owned(), attempt };
    let mut job = Job::new(id, spec, Some(parent));
    job.submitted_by.clone_from(&run.started_by);
    job.requesters.clone_from(&run.requesters);
    Some(job)
}
