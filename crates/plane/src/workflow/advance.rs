//! A run taken further: pure, so that every history of results, repetitions and delays can be tried.
//!
//! ```text
//! Progress::new(run) -> feed(input)* -> settle() -> Advance { run, jobs to make, jobs to call off, when to look again }
//! ```

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::doc::StepWork;
use super::run::{Run, RunState, StepRun, StepStatus};
use crate::job::{Job, Parent};
use crate::store::memory::later;

/// What happens to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input {
    /// It begins.
    Start,
    /// The job of a step has ended.
    Result {
        /// Which step.
        step: String,
        /// Which attempt at it.
        attempt: u32,
        /// How: `None` for well.
        failed: Option<String>,
    },
    /// Time has passed.
    Tick,
    /// Someone calls it off.
    Cancel {
        /// Why.
        why: String,
    },
    /// Someone wants it again, from a step on.
    Rerun {
        /// Which.
        from: String,
    },
}

/// Why an input changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dropped {
    /// The run is over.
    RunEnded,
    /// The step has ended already: a repetition.
    StepEnded {
        /// Which.
        step: String,
    },
    /// It is about an earlier attempt at the step.
    StaleAttempt {
        /// Which.
        step: String,
    },
    /// The run has no such step.
    NoSuchStep {
        /// Which.
        step: String,
    },
    /// A run that is under way cannot be rerun.
    StillRunning,
}

/// A run on its way from one version to the next.
#[derive(Debug)]
pub struct Progress {
    run: Run,
    moved: Map<String, Value>,
    call_off: Vec<String>,
    why: Vec<String>,
}

/// What is to be written.
#[derive(Debug)]
pub struct Advance {
    /// The run afterwards.
    pub run: Run,
    /// Jobs that begin with this write.
    pub jobs: Vec<Job>,
    /// Jobs that are not wanted any more.
    pub call_off: Vec<String>,
    /// When time will have made a difference.
    pub wake_in: Option<Duration>,
    /// Which steps moved, and to what; nothing is to be written if this is empty and the state stayed.
    pub moved: Map<String, Value>,
    /// Why, for the event.
    pub why: String,
}

impl Progress {
    /// From the run as it was read.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self {
            run,
            moved: Map::new(),
            call_off: Vec::new(),
            why: Vec::new(),
        }
    }

    /// The run as it is so far.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Takes one input.
    ///
    /// # Errors
    /// It changes nothing, for this reason.
    pub fn feed(&mut self, input: &Input) -> Result<(), Dropped> {
        match input {
            Input::Start => self.running("started"),
            Input::Tick => self.running("time has passed"),
            Input::Result {
                step,
                attempt,
                failed,
            } => self.result(step, *attempt, failed.as_deref()),
            Input::Cancel { why } => self.cancel(why),
            Input::Rerun { from } => self.rerun(from),
        }
    }

    fn running(&mut self, why: &str) -> Result<(), Dropped> {
        if self.run.state.ended() {
            return Err(Dropped::RunEnded);
        }
        if self.run.state == RunState::Pending {
            self.run.state = RunState::Running;
        }
        self.why.push(why.to_owned());
        Ok(())
    }

    fn result(&mut self, step: &str, attempt: u32, failed: Option<&str>) -> Result<(), Dropped> {
        let named = || step.to_owned();
        let Some(at) = self.run.steps.get(step) else {
            return Err(Dropped::NoSuchStep { step: named() });
        };
        if at.attempt != attempt {
            return Err(Dropped::StaleAttempt { step: named() });
        }
        // Before the run's end: a repetition is one whether or not the run is over by now.
        if matches!(at.status, StepStatus::Done | StepStatus::Failed) {
            return Err(Dropped::StepEnded { step: named() });
        }
        if self.run.state.ended() || at.status != StepStatus::Running {
            return Err(Dropped::RunEnded);
        }
        let (status, why) = match failed {
            None => (StepStatus::Done, None),
            Some(why) => (StepStatus::Failed, Some(why.to_owned())),
        };
        self.why.push(format!("step {step} ended"));
        self.set(step, status, why);
        Ok(())
    }

    fn cancel(&mut self, why: &str) -> Result<(), Dropped> {
        if self.run.state.ended() {
            return Err(Dropped::RunEnded);
        }
        let open: Vec<_> = self
            .run
            .steps
            .iter()
            .filter(|(_, step)| !step.status.ended())
            .map(|(id, step)| (id.clone(), step.status, step.job.clone()))
            .collect();
        for (id, status, job) in open {
            if status == StepStatus::Running {
                self.call_off.extend(job);
            }
            self.set(&id, StepStatus::Cancelled, Some(why.to_owned()));
        }
        self.run.state = RunState::Cancelled;
        self.why.push(format!("cancelled: {why}"));
        Ok(())
    }

    fn rerun(&mut self, from: &str) -> Result<(), Dropped> {
        if self.run.workflow.step(from).is_none() {
            return Err(Dropped::NoSuchStep {
                step: from.to_owned(),
            });
        }
        if !self.run.state.ended() {
            return Err(Dropped::StillRunning);
        }
        let again: Vec<_> = self
            .run
            .workflow
            .downstream(from)
            .into_iter()
            .map(str::to_owned)
            .collect();
        for id in again {
            self.set(&id, StepStatus::Waiting, None);
        }
        self.run.state = RunState::Running;
        self.why.push(format!("rerun from {from}"));
        Ok(())
    }

    fn set(&mut self, step: &str, status: StepStatus, why: Option<String>) {
        let Some(at) = self.run.steps.get_mut(step) else {
            return;
        };
        at.status = status;
        at.why = why;
        at.due = None;
        self.moved
            .insert(step.to_owned(), json!({"to": status, "attempt": at.attempt}));
    }

    /// Begins what can begin, ends what has ended.
    #[must_use]
    pub fn settle(mut self) -> Advance {
        let mut jobs = Vec::new();
        if self.run.state == RunState::Running {
            // One step's end can be the next one's beginning: until nothing moves any more.
            while self.pass(&mut jobs) {}
            self.end();
        }
        let now = self.run.now;
        let dues = self.run.steps.values().filter_map(|step| step.due);
        let wake_in = dues
            .min()
            .map(|due| Duration::from_millis(due.saturating_sub(now)));
        Advance {
            wake_in: wake_in.filter(|_| !self.run.state.ended()),
            jobs,
            call_off: self.call_off,
            moved: self.moved,
            why: self.why.join("; "),
            run: self.run,
        }
    }

    fn pass(&mut self, jobs: &mut Vec<Job>) -> bool {
        let mut moved = false;
        for step in self.run.workflow.steps.clone() {
            let Some(at) = self.run.steps.get(&step.id).cloned() else {
                continue;
            };
            let of = |need: &String| {
                self.run
                    .steps
                    .get(need)
                    .map_or(StepStatus::Skipped, |step| step.status)
            };
            let needs: Vec<_> = step.needs.iter().map(of).collect();
            match at.status {
                StepStatus::Delayed if at.due.is_some_and(|due| due <= self.run.now) => {
                    self.set(&step.id, StepStatus::Done, None);
                }
                StepStatus::Waiting if needs.iter().all(|need| *need == StepStatus::Done) => {
                    jobs.extend(self.begin(&step.id, &step.work, at));
                }
                StepStatus::Waiting if needs.iter().any(|need| need.ended() && *need != StepStatus::Done) => {
                    self.set(
                        &step.id,
                        StepStatus::Skipped,
                        Some("what it needs was not done".into()),
                    );
                }
                _ => continue,
            }
            moved = true;
        }
        moved
    }

    fn begin(&mut self, id: &str, work: &StepWork, at: StepRun) -> Option<Job> {
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
            entry.due = Some(later(now, span.0));
        }
        self.moved
            .insert(id.to_owned(), json!({"to": entry.status, "attempt": attempt}));
        job
    }

    /// The job of an attempt at a step: the same one, however often it is asked for.
    fn job(&self, id: &str, attempt: u32) -> Option<Job> {
        job_of(&self.run, id, attempt)
    }

    fn end(&mut self) {
        if !self.run.steps.values().all(|step| step.status.ended()) {
            return;
        }
        let failed = self
            .run
            .steps
            .values()
            .any(|step| step.status != StepStatus::Done);
        self.run.state = if failed {
            RunState::Failed
        } else {
            RunState::Succeeded
        };
        self.why.push("every step has ended".into());
    }
}

/// The job that an attempt at a step is, or would be.
pub(crate) fn job_of(run: &Run, step: &str, attempt: u32) -> Option<Job> {
    let mut spec = run.workflow.step(step)?.job(&run.workflow.class, &run.org)?;
    let id = run.job_id(step, attempt);
    spec.id = Some(id.clone());
    spec.key = Some(format!("run/{}/{step}/{attempt}", run.id));
    spec.labels.insert("run".into(), run.id.clone());
    if spec.payload.is_null() {
        spec.payload = run.input.clone();
    }
    let parent = Parent {
        run: run.id.clone(),
        step: step.to_owned(),
        attempt,
    };
    Some(Job::new(id, spec, Some(parent)))
}
