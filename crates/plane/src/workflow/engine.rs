//! The workflow engine: receives messages about runs and advances each run under its lock.
//!
//! A run is locked under its workflow's class. Code that already holds `run:<id>` calls
//! [`Engine::advance`] with that hold. Nothing here locks twice, and nothing reports success for work
//! that it skipped (trap 31).

use std::time::Duration;

use leasehold_core::{Exclusivity, Hold};
use serde_json::{Value, json};

use super::advance::{IgnoredInput, Progress, RunChange, RunInput, job_of_attempt};
use super::run::{Run, StepStatus};
use crate::cancel_request::{CancelRequest, cancel_request_revision};
use crate::error::PlaneError;
use crate::events::PlaneEvent;
use crate::fenced_writer::{FencedWriter, job_revision, run_lock_name};
use crate::job::{Job, add_requester, dispatch_message};
use crate::plane::UNAUTHENTICATED;
use crate::scheduler::while_held;
use crate::state::JobState;
use crate::store::{Delivery, DocumentKind, Message, Queue, Revision, WriteRefusal, WriteRequest};

/// How often a run is read again after a version conflict. Only a local-only holder can cause one.
const MAX_CONFLICT_RETRIES: usize = 5;

/// One replica's workflow engine.
#[derive(Debug, Clone)]
pub struct Engine {
    writer: FencedWriter,
}

/// A message about a run, to the engine.
pub(crate) fn run_message(run: &str, id: &str, order: &Value, due_in: Duration) -> Message {
    Message {
        queue: Queue::Runs,
        id: id.to_owned(),
        document_id: run.to_owned(),
        body: order.to_string(),
        due_in,
    }
}

impl Engine {
    /// An engine that makes its changes through this writer.
    #[must_use]
    pub fn new(writer: FencedWriter) -> Self {
        Self { writer }
    }

    /// Handles one delivery and settles it.
    pub async fn handle_delivery(&self, delivery: &Delivery) {
        let out = self.process(delivery).await;
        self.writer.settle_delivery(delivery, out).await;
    }

    async fn process(&self, delivery: &Delivery) -> Result<(), PlaneError> {
        let order: Value = serde_json::from_str(&delivery.body).unwrap_or_default();
        let run = match self.writer.run(&delivery.document_id).await {
            Ok(run) => run,
            Err(PlaneError::NotFound { .. }) => return self.writer.discard(delivery).await,
            Err(error) => return Err(error),
        };
        // No lock is needed for an ended run: nothing can change. The inputs are applied to a copy only to
        // count repeated results.
        if run.state.is_terminal() && order["verb"] != "rerun" {
            for input in self.inputs(&run, &order).await? {
                self.apply_input(&mut Progress::new(run.clone()), &input);
            }
            return self.writer.discard(delivery).await;
        }
        let hold = self.writer.lock(&run.workflow.class, run_lock_name(&run.id)?, None).await?;
        let work = async {
            self.advance(&hold, &run.id, &order).await?;
            self.writer.ack(&hold, delivery).await
        };
        let out = while_held(&hold, work).await;
        hold.release().await;
        out.map(drop)
    }

    /// Advances a run, for a caller that holds its lock.
    ///
    /// # Errors
    /// The hold is lost or belongs to another name; the store refused or did not respond.
    pub async fn advance(&self, hold: &Hold, id: &str, order: &Value) -> Result<Run, PlaneError> {
        // A hold on another name would pass the clock check but protect the wrong run.
        hold.cover(&run_lock_name(id)?)?;
        let (mut last, mut conflicts) = (None, Vec::new());
        for _ in 0..MAX_CONFLICT_RETRIES {
            let run = self.writer.run(id).await?;
            let mut next = run.clone();
            if let ("rerun", Some(principal)) =
                (order["verb"].as_str().unwrap_or_default(), order["principal"].as_str())
            {
                // Beside the one that started it: otherwise a rerun by another one would allow it to decide.
                add_requester(&mut next.requesters, principal);
            }
            let mut progress = Progress::new(next);
            let inputs =
                if conflicts.is_empty() { self.inputs(&run, order).await? } else { conflicts.clone() };
            for input in inputs {
                self.apply_input(&mut progress, &input);
            }
            let mut advance = progress.finish();
            self.recreate_lost_jobs(&mut advance, order).await?;
            // No change, no write: otherwise each repeated tick would add an event and a version.
            if advance.changed_steps.is_empty() && advance.run.state == run.state && advance.jobs.is_empty() {
                return Ok(run);
            }
            match self.write_change(hold, &run, advance, &order["principal"]).await {
                Err(PlaneError::Refused(refusal @ WriteRefusal::VersionMismatch { .. })) => {
                    last = Some(refusal)
                }
                Ok((run, found)) if found.is_empty() => return Ok(run),
                // Fails those steps now, under the same hold. After a crash the next tick does it.
                Ok((_, found)) => conflicts = found,
                Err(error) => return Err(error),
            }
        }
        Err(last.map_or(PlaneError::Refused(WriteRefusal::Missing), PlaneError::Refused))
    }

    fn apply_input(&self, progress: &mut Progress, input: &RunInput) {
        if let Err(dropped) = progress.apply_input(input) {
            tracing::debug!(?dropped, ?input, "changes nothing");
            if let IgnoredInput::StepEnded { step } = dropped {
                let run = progress.run().clone();
                self.writer.emit(&PlaneEvent::RepeatedStep { run: run.id, step });
            }
        }
    }

    /// Translates an order into inputs for this run in its present state.
    async fn inputs(&self, run: &Run, order: &Value) -> Result<Vec<RunInput>, PlaneError> {
        let text = |field: &str| order[field].as_str().unwrap_or_default().to_owned();
        Ok(match order["verb"].as_str().unwrap_or_default() {
            "start" => vec![RunInput::Start],
            "wake" => vec![RunInput::Tick],
            "cancel" => vec![RunInput::Cancel { why: text("why") }],
            // Of another end of the run: delivered again after its own rerun has ended.
            "rerun" if order["version"].as_u64().is_some_and(|version| version != run.version) => Vec::new(),
            "rerun" => vec![RunInput::Rerun { from: text("from") }],
            "result" => {
                let attempt = order["attempt"].as_u64().and_then(|number| number.try_into().ok());
                let job = self.writer.find_job(&text("job")).await?;
                let (step, attempt) = (text("step"), attempt.unwrap_or(0));
                // A message about another job changes nothing.
                let job = job.filter(|job| is_step_job(job, &run.id, &step, attempt));
                result_input(run, &step, attempt, job.as_ref()).into_iter().collect()
            }
            // A tick recovers lost messages: each running step is compared with its job.
            _ => {
                let mut inputs = vec![RunInput::Tick];
                for (id, step) in run.steps.iter().filter(|(_, step)| step.status == StepStatus::Running) {
                    let job = step.job.as_deref().unwrap_or_default();
                    let job = self.writer.find_job(job).await?;
                    inputs.extend(result_input(run, id, step.attempt, job.as_ref()));
                }
                inputs
            }
        })
    }

    /// On a tick, creates the missing jobs of running steps again.
    async fn recreate_lost_jobs(&self, advance: &mut RunChange, order: &Value) -> Result<(), PlaneError> {
        if order["verb"] != "tick" {
            return Ok(());
        }
        let run = &advance.run;
        let begun: Vec<_> = advance.jobs.iter().map(|job| job.id.clone()).collect();
        let mut lost = Vec::new();
        for (id, step) in run.steps.iter().filter(|(_, step)| step.status == StepStatus::Running) {
            let Some(job) = job_of_attempt(run, id, step.attempt) else {
                continue;
            };
            // The job id follows from run, step and attempt, so a job made again is the same job.
            if !begun.contains(&job.id) && self.writer.find_job(&job.id).await?.is_none() {
                lost.push(job);
            }
        }
        advance.jobs.extend(lost);
        Ok(())
    }

    /// The only writer of runs: the run, its new jobs and its cancel requests, in one step. Returns also the
    /// inputs that fail those steps whose job id another job has.
    async fn write_change(
        &self,
        hold: &Hold,
        seen: &Run,
        advance: RunChange,
        principal: &Value,
    ) -> Result<(Run, Vec<RunInput>), PlaneError> {
        let writer = &self.writer;
        let mut event = json!({
            "from": seen.state,
            "to": advance.run.state,
            "by": writer.holder_name(),
            "class": hold.class(),
            "fence": hold.fence_if_any()?,
            "local_only": hold.exclusivity() == Exclusivity::LocalOnly,
            "steps": advance.changed_steps,
            "why": advance.reason,
        });
        // Only client requests have one; results and ticks are the engine's own.
        if !principal.is_null() {
            event["principal"] = principal.clone();
        }
        let submitted = json!({
            "by": writer.holder_name(),
            "principal": advance.run.requester(),
            "why": format!("a step of run {}", seen.id),
        });
        let cancel_request = CancelRequest {
            reason: "its run was cancelled".to_owned(),
            principal: principal.as_str().map(str::to_owned),
        };
        let mut also: Vec<Revision> = Vec::new();
        for job in &advance.jobs {
            let mut event = submitted.clone();
            event["to"] = json!(job.state);
            // The same due time as a submitted job: replayer and reconciler find it by that.
            also.push(job_revision(job, writer.settings.due_in(job, None), &event.to_string()));
        }
        also.extend(advance.cancel_jobs.iter().map(|job| cancel_request_revision(job, &cancel_request)));
        let begin = advance.jobs.iter().filter(|job| job.state == JobState::Pending);
        let mut send: Vec<Message> = begin.map(|job| dispatch_message(job, Duration::ZERO)).collect();
        // Cancelled jobs get a message, so that they end now and not at their own due time.
        send.extend(advance.cancel_jobs.iter().map(|job| crate::job::cancel_message(job)));
        let allowed_states = if seen.state.is_terminal() {
            // A rerun without any work ends in the write that begins it.
            vec![seen.state.as_str()]
        } else {
            advance.run.state.predecessors()
        };
        let write = WriteRequest {
            id: writer.new_id(),
            revision: run_revision(&advance.run, advance.wake_in, &event),
            expected_version: Some(seen.version),
            allowed_states,
            quota: None,
            fence: None,
            new_documents: also,
            messages: send,
            only_due_time: false,
        };
        let (version, skipped) = writer.commit(hold, write).await?;
        let mut conflicts = Vec::new();
        for job in advance.jobs.iter().filter(|job| skipped.contains(&job.id)) {
            let (Some(parent), there) = (&job.parent, writer.find_job(&job.id).await?) else { continue };
            match there {
                Some(there) if !is_step_job(&there, &parent.run, &parent.step, parent.attempt) => {
                    conflicts.extend(result_input(&advance.run, &parent.step, parent.attempt, Some(&there)));
                }
                _ => writer.emit(&PlaneEvent::RepeatedHandOver { job: job.id.clone() }),
            }
        }
        Ok((Run { version, ..advance.run }, conflicts))
    }
}

pub(crate) fn run_revision(run: &Run, due_in: Option<Duration>, event: &Value) -> Revision {
    Revision {
        kind: DocumentKind::Run,
        id: run.id.clone(),
        state: run.state.as_str(),
        due_in,
        index_key: run.org.clone(),
        owner: run.requester().filter(|by| *by != UNAUTHENTICATED).unwrap_or_default().to_owned(),
        key: None,
        body: serde_json::to_string(run).unwrap_or_default(),
        event: event.to_string(),
    }
}

/// Whether the job was made for exactly this attempt of this step.
fn is_step_job(job: &Job, run: &str, step: &str, attempt: u32) -> bool {
    let parent = job.parent.as_ref();
    parent.is_some_and(|of| of.run == run && of.step == step && of.attempt == attempt)
}

/// The input that an ended job makes for its step; `None` while the job has not ended. A job that was not
/// made for the step never counts as its work: the step fails.
fn result_input(run: &Run, step: &str, attempt: u32, job: Option<&Job>) -> Option<RunInput> {
    let job = job?;
    if !is_step_job(job, &run.id, step, attempt) {
        tracing::warn!(run = %run.id, step, job = %job.id, "the step's job id belongs to another job");
        let why = format!("the id {} belongs to a job that is not this step's; cancel it and rerun", job.id);
        return Some(RunInput::Result { step: step.to_owned(), attempt, failed: Some(why) });
    }
    let job = Some(job).filter(|job| job.state.is_terminal())?;
    let failed = (job.state != JobState::Succeeded).then(|| {
        let dead = job.dead.as_ref().map(|dead| dead.reason.as_str());
        let denied = job.decision.as_ref().map(|made| made.reason.as_str());
        format!("{}: {}", job.state, dead.or(denied).unwrap_or("no reason was given"))
    });
    Some(RunInput::Result { step: step.to_owned(), attempt, failed })
}

impl FencedWriter {
    /// Reads a run.
    ///
    /// # Errors
    /// The store did not respond, or the run does not exist.
    pub async fn run(&self, id: &str) -> Result<Run, PlaneError> {
        let doc = self.call(self.store.read(DocumentKind::Run, id)).await?;
        let doc = doc.ok_or_else(|| PlaneError::NotFound { kind: "run", id: id.to_owned() })?;
        Ok(Run::read(&doc)?)
    }

    /// Reads a run that may not exist.
    pub(crate) async fn find_run(&self, id: &str) -> Result<Option<Run>, PlaneError> {
        match self.run(id).await {
            Ok(run) => Ok(Some(run)),
            Err(PlaneError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a job that may not exist.
    pub(crate) async fn find_job(&self, id: &str) -> Result<Option<Job>, PlaneError> {
        match self.job(id).await {
            Ok(job) => Ok(Some(job)),
            Err(PlaneError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
