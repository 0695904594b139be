//! The workflow engine: takes mail about runs, and takes each run further under its lock.
//!
//! A run is locked under its own class. Code that holds `run:<id>` already calls [`Engine::advance`], which takes the hold;
//! nothing here locks twice, and nothing reports success for work it skipped (trap 31).

use std::time::Duration;

use leasehold_core::{Exclusivity, Hold};
use serde_json::{Value, json};

use super::advance::{Advance, Dropped, Input, Progress, job_of};
use super::run::{Run, StepStatus};
use crate::error::PlaneError;
use crate::job::{Job, go};
use crate::ledger::{Ledger, job_entry, run_lock};
use crate::note::Note;
use crate::scheduler::guarded;
use crate::state::JobState;
use crate::store::{Entry, Kind, Mail, Queue, Refusal, Taken, Write};

/// How often a run is read anew because someone else wrote it meanwhile: only local-only holders can.
const CONFLICTS: usize = 5;

/// One replica's workflow engine.
#[derive(Debug, Clone)]
pub struct Engine {
    ledger: Ledger,
}

/// A message to the engine about a run.
pub(crate) fn mail(run: &str, id: &str, order: &Value, due_in: Duration) -> Mail {
    Mail {
        queue: Queue::Runs,
        id: id.to_owned(),
        to: run.to_owned(),
        body: order.to_string(),
        due_in,
    }
}

impl Engine {
    /// An engine that writes through this ledger.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }

    /// Answers one delivery, whatever it takes.
    pub async fn deliver(&self, mail: &Taken) {
        let out = self.turn(mail).await;
        self.ledger.answer(mail, out).await;
    }

    async fn turn(&self, mail: &Taken) -> Result<(), PlaneError> {
        let order: Value = serde_json::from_str(&mail.body).unwrap_or_default();
        let run = match self.ledger.run(&mail.to).await {
            Ok(run) => run,
            Err(PlaneError::NotFound { .. }) => return self.ledger.discard(mail).await,
            Err(error) => return Err(error),
        };
        // A stale result of a finished run is dropped: nothing it could change is left.
        if run.state.ended() && order["verb"] != "rerun" {
            for input in self.inputs(&run, &order).await? {
                self.feed(&mut Progress::new(run.clone()), &input);
            }
            return self.ledger.discard(mail).await;
        }
        let hold = self
            .ledger
            .lock(&run.workflow.class, run_lock(&run.id)?, None)
            .await?;
        let work = async {
            self.advance(&hold, &run.id, &order).await?;
            self.ledger.ack(&hold, mail).await
        };
        let out = guarded(&hold, work).await;
        hold.release().await;
        out.map(drop)
    }

    /// Takes a run further, for a caller that holds its lock.
    ///
    /// # Errors
    /// The hold is over or another's, the store refused or did not answer.
    pub async fn advance(&self, hold: &Hold, id: &str, order: &Value) -> Result<Run, PlaneError> {
        hold.cover(&run_lock(id)?)?;
        let mut last = None;
        for _ in 0..CONFLICTS {
            let run = self.ledger.run(id).await?;
            let mut progress = Progress::new(run.clone());
            for input in self.inputs(&run, order).await? {
                self.feed(&mut progress, &input);
            }
            let mut advance = progress.settle();
            self.mend(&mut advance, order).await?;
            if advance.moved.is_empty() && advance.run.state == run.state && advance.jobs.is_empty() {
                return Ok(run);
            }
            match self.write(hold, &run, advance).await {
                Err(PlaneError::Refused(refusal @ Refusal::Version { .. })) => last = Some(refusal),
                other => return other,
            }
        }
        Err(last.map_or(PlaneError::Refused(Refusal::Missing), PlaneError::Refused))
    }

    fn feed(&self, progress: &mut Progress, input: &Input) {
        if let Err(dropped) = progress.feed(input) {
            tracing::debug!(?dropped, ?input, "changes nothing");
            if let Dropped::StepEnded { step } = dropped {
                let run = progress.run().clone();
                self.ledger.note(&Note::RepeatedStep { run: run.id, step });
            }
        }
    }

    /// What an order means for this run as it is now.
    async fn inputs(&self, run: &Run, order: &Value) -> Result<Vec<Input>, PlaneError> {
        let text = |field: &str| order[field].as_str().unwrap_or_default().to_owned();
        Ok(match order["verb"].as_str().unwrap_or_default() {
            "start" => vec![Input::Start],
            "wake" => vec![Input::Tick],
            "cancel" => vec![Input::Cancel { why: text("why") }],
            "rerun" => vec![Input::Rerun { from: text("from") }],
            "result" => {
                let attempt = order["attempt"]
                    .as_u64()
                    .and_then(|number| number.try_into().ok());
                let job = self.ledger.find_job(&text("job")).await?;
                result(&text("step"), attempt.unwrap_or(0), job.as_ref())
                    .into_iter()
                    .collect()
            }
            // Whatever got lost is found again: every step under way is compared with its job.
            _ => {
                let mut inputs = vec![Input::Tick];
                for (id, step) in run
                    .steps
                    .iter()
                    .filter(|(_, step)| step.status == StepStatus::Running)
                {
                    let job = step.job.as_deref().unwrap_or_default();
                    inputs.extend(result(
                        id,
                        step.attempt,
                        self.ledger.find_job(job).await?.as_ref(),
                    ));
                }
                inputs
            }
        })
    }

    /// On a tick, makes the jobs of steps under way again that are not there.
    async fn mend(&self, advance: &mut Advance, order: &Value) -> Result<(), PlaneError> {
        if order["verb"] != "tick" {
            return Ok(());
        }
        let run = &advance.run;
        let begun: Vec<_> = advance.jobs.iter().map(|job| job.id.clone()).collect();
        let mut lost = Vec::new();
        for (id, step) in run
            .steps
            .iter()
            .filter(|(_, step)| step.status == StepStatus::Running)
        {
            let Some(job) = job_of(run, id, step.attempt) else {
                continue;
            };
            if !begun.contains(&job.id) && self.ledger.find_job(&job.id).await?.is_none() {
                lost.push(job);
            }
        }
        advance.jobs.extend(lost);
        Ok(())
    }

    /// The run's one writer: the run, the jobs that begin, the jobs called off, in one step.
    async fn write(&self, hold: &Hold, seen: &Run, advance: Advance) -> Result<Run, PlaneError> {
        let ledger = &self.ledger;
        let event = json!({
            "from": seen.state,
            "to": advance.run.state,
            "by": ledger.me(),
            "class": hold.class(),
            "fence": hold.unfenced()?,
            "local_only": hold.exclusivity() == Exclusivity::LocalOnly,
            "steps": advance.moved,
            "why": advance.why,
        });
        let submitted = json!({"by": ledger.me(), "why": format!("a step of run {}", seen.id)});
        let mut also: Vec<Entry> = Vec::new();
        for job in &advance.jobs {
            let mut event = submitted.clone();
            event["to"] = json!(job.state);
            also.push(Entry {
                key: job.spec.key.clone(),
                // As of any other new job: the replayer and the reconciler look for it by this.
                ..job_entry(job, ledger.settings.look(job, None), &event.to_string())
            });
        }
        also.extend(
            advance
                .call_off
                .iter()
                .map(|job| crate::signal::wish(job, "its run was cancelled")),
        );
        let begin = advance.jobs.iter().filter(|job| job.state == JobState::Pending);
        let mut send: Vec<Mail> = begin.map(|job| go(job, Duration::ZERO)).collect();
        // The jobs called off are looked at now, not when their own time comes.
        send.extend(advance.call_off.iter().map(|job| crate::job::off(job)));
        let write = Write {
            id: ledger.fresh_id(),
            entry: run_entry(&advance.run, advance.wake_in, &event),
            expect: Some(seen.version),
            from: advance.run.state.before(),
            fence: None,
            also,
            send,
        };
        let (version, skipped) = ledger.commit(hold, write).await?;
        for job in skipped
            .into_iter()
            .filter(|id| advance.jobs.iter().any(|job| job.id == *id))
        {
            ledger.note(&Note::RepeatedHandOver { job });
        }
        Ok(Run {
            version,
            ..advance.run
        })
    }
}

/// A run as a store keeps it.
pub(crate) fn run_entry(run: &Run, due_in: Option<Duration>, event: &Value) -> Entry {
    Entry {
        kind: Kind::Run,
        id: run.id.clone(),
        state: run.state.word(),
        due_in,
        shelf: run.org.clone(),
        key: None,
        body: serde_json::to_string(run).unwrap_or_default(),
        event: event.to_string(),
    }
}

/// What an ended job means for its step.
fn result(step: &str, attempt: u32, job: Option<&Job>) -> Option<Input> {
    let job = job.filter(|job| job.state.ended())?;
    let failed = (job.state != JobState::Succeeded).then(|| {
        let dead = job.dead.as_ref().map(|dead| dead.reason.as_str());
        let denied = job.decision.as_ref().map(|made| made.reason.as_str());
        format!(
            "{}: {}",
            job.state,
            dead.or(denied).unwrap_or("no reason was given")
        )
    });
    Some(Input::Result {
        step: step.to_owned(),
        attempt,
        failed,
    })
}

impl Ledger {
    /// Reads a run.
    ///
    /// # Errors
    /// The store did not answer, or there is none.
    pub async fn run(&self, id: &str) -> Result<Run, PlaneError> {
        let doc = self.call(self.store.read(Kind::Run, id)).await?;
        let doc = doc.ok_or_else(|| PlaneError::NotFound {
            kind: "run",
            id: id.to_owned(),
        })?;
        Ok(Run::read(&doc)?)
    }

    /// Reads a job that may not be there.
    pub(crate) async fn find_job(&self, id: &str) -> Result<Option<Job>, PlaneError> {
        match self.job(id).await {
            Ok(job) => Ok(Some(job)),
            Err(PlaneError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
