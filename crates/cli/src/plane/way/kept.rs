//! A plane's answers, straight from its store.

use anyhow::anyhow;
use leasehold::StoreUrl;
use leasehold_plane::{Cancelled, JobState, Plane, PlaneError, Submitted, view};
use serde_json::{Value, json};

use super::super::question::Question;
use super::{Answer, Came, No, refuses, then};

/// A plane, and where it and its locks are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) plane: Plane,
    pub(super) jobs: StoreUrl,
    pub(super) locks: StoreUrl,
}

impl Kept {
    pub(super) async fn ask(&self, question: &Question) -> Result<Answer, No> {
        self.answer(question)
            .await
            .map_err(|error| self.no(question, error))
    }

    async fn answer(&self, question: &Question) -> Result<Answer, PlaneError> {
        let plane = &self.plane;
        let now = |view: Value| Answer {
            view,
            came: Came::Now,
        };
        let job = |Submitted { job, repeated }: Submitted| Answer {
            view: view::job(&job),
            came: Came::before(repeated),
        };
        Ok(match question {
            Question::Submit(spec) => job(plane.submit(spec.as_ref().clone()).await?),
            Question::Retry { id } => job(plane.replay(id).await?),
            Question::Job { id } => {
                let mut whole = view::job(&plane.job(id).await?);
                let history = plane.job_history(id).await?;
                whole["history"] = history.iter().map(view::event).collect();
                now(whole)
            }
            Question::Jobs { states, topic, limit } => {
                let jobs = plane.jobs(states, topic.as_deref(), *limit as usize).await?;
                now(jobs.iter().map(view::job).collect())
            }
            Question::Cancel { id, reason } => cancelled(id, plane.cancel(id, reason).await?)?,
            Question::Apply { workflow, .. } => {
                let version = plane.apply_workflow(workflow).await?;
                now(json!({"name": workflow.name, "version": version}))
            }
            Question::Start(start) => {
                let started = plane.start(start.as_ref().clone()).await?;
                Answer {
                    view: view::run(&started.run),
                    came: Came::before(started.repeated),
                }
            }
            Question::Run { id } => {
                let mut whole = view::run(&plane.run(id).await?);
                let timeline = plane.timeline(id).await?;
                whole["timeline"] = timeline.iter().map(view::event).collect();
                now(whole)
            }
            Question::Runs { limit } => {
                let runs = plane.runs(&[], *limit as usize).await?;
                now(runs.iter().map(view::run).collect())
            }
            Question::CancelRun { id, reason } => now(view::run(&plane.cancel_run(id, reason).await?)),
            Question::Rerun { id, from } => now(view::run(&plane.rerun(id, from).await?)),
            Question::Approvals { limit } => {
                let jobs = plane.approvals(*limit as usize).await?;
                now(jobs.iter().map(view::job).collect())
            }
            Question::Approve { id, verdict } => now(view::job(&plane.approve(id, verdict).await?)),
            Question::Reject { id, verdict } => now(view::job(&plane.reject(id, verdict).await?)),
            Question::Repair { id, payload, verdict } => {
                now(view::job(&plane.repair(id, payload.clone(), verdict).await?))
            }
        })
    }

    fn no(&self, question: &Question, error: PlaneError) -> No {
        if refuses(error.status()) {
            return No::Refused {
                code: error.code().to_owned(),
                detail: error.to_string(),
            };
        }
        let what = question.what();
        No::Failed(match error {
            PlaneError::Invalid(invalid) => invalid.into(),
            PlaneError::Store(failure) => {
                anyhow!(
                    "cannot {what} at {}: {failure}\n{}",
                    self.jobs,
                    then(failure.unknown)
                )
            }
            // A lock that was not got is work that was not begun.
            PlaneError::Lock(error) => anyhow!("cannot {what} at {}: {error}\n{}", self.locks, then(false)),
            other => anyhow!("cannot {what}: {other}\n{}", then(true)),
        })
    }
}

/// Said twice, it is the same end; any other end stands.
fn cancelled(id: &str, cancelled: Cancelled) -> Result<Answer, PlaneError> {
    let (job, came) = match cancelled {
        Cancelled::Requested(job) => (job, Came::Later),
        Cancelled::Now(job) => (job, Came::Now),
        Cancelled::Ended(job) if job.state == JobState::Cancelled => (job, Came::Now),
        Cancelled::Ended(job) => {
            return Err(PlaneError::Conflict {
                code: "terminal",
                what: format!("job {id} has ended as {}", job.state),
            });
        }
        // What a later version may add is an end of some kind: the job says which.
        _ => {
            return Err(PlaneError::Conflict {
                code: "terminal",
                what: format!("job {id} cannot be called off any more"),
            });
        }
    };
    Ok(Answer {
        view: view::job(&job),
        came,
    })
}
