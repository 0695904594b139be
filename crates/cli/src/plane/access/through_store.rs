//! Access to a control plane through its store.

use anyhow::anyhow;
use leasehold::StoreUrl;
use leasehold::http::wire::ErrorCode;
use leasehold_plane::{CancelResponse, JobState, Plane, PlaneError, SubmitResponse, view};
use serde_json::{Value, json};

use super::super::request::PlaneRequest;
use super::{EffectTime, PlaneResponse, RequestError, is_refusal, retry_advice};

/// An open plane, with the URLs of its stores for error messages.
#[derive(Debug)]
pub(crate) struct StoreAccess {
    pub(super) plane: Plane,
    pub(super) jobs: StoreUrl,
    pub(super) locks: StoreUrl,
}

impl StoreAccess {
    pub(super) async fn request(&self, question: &PlaneRequest) -> Result<PlaneResponse, RequestError> {
        self.execute(question).await.map_err(|error| self.to_request_error(question, error))
    }

    async fn execute(&self, question: &PlaneRequest) -> Result<PlaneResponse, PlaneError> {
        let plane = &self.plane;
        let now = |view: Value| PlaneResponse { view, effect: EffectTime::Now };
        let job = |SubmitResponse { job, repeated, .. }: SubmitResponse| PlaneResponse {
            view: view::job_json(&job),
            effect: EffectTime::from_repeated(repeated),
        };
        Ok(match question {
            PlaneRequest::Submit(spec) => job(plane.submit(spec.as_ref().clone()).await?),
            PlaneRequest::Retry { id } => job(plane.replay(id).await?),
            PlaneRequest::Job { id } => {
                let mut whole = view::job_json(&plane.job(id).await?);
                let history = plane.job_history(id).await?;
                whole["history"] = history.iter().map(view::event_json).collect();
                now(whole)
            }
            PlaneRequest::Jobs { states, topic, limit } => {
                let jobs = plane.jobs(states, topic.as_deref(), *limit as usize).await?;
                now(jobs.iter().map(view::job_json).collect())
            }
            PlaneRequest::Cancel { id, reason } => cancel_response(id, plane.cancel(id, reason).await?)?,
            PlaneRequest::Apply { workflow, .. } => {
                let version = plane.apply_workflow(workflow).await?;
                now(json!({"name": workflow.name, "version": version}))
            }
            PlaneRequest::Start(start) => {
                let started = plane.start_run(start.as_ref().clone()).await?;
                PlaneResponse {
                    view: view::run_json(&started.run),
                    effect: EffectTime::from_repeated(started.repeated),
                }
            }
            PlaneRequest::Run { id } => {
                let mut whole = view::run_json(&plane.run(id).await?);
                let timeline = plane.run_history(id).await?;
                whole["timeline"] = timeline.iter().map(view::event_json).collect();
                now(whole)
            }
            PlaneRequest::Runs { limit } => {
                let runs = plane.runs(&[], *limit as usize).await?;
                now(runs.iter().map(view::run_json).collect())
            }
            PlaneRequest::CancelRun { id, reason } => {
                now(view::run_json(&plane.cancel_run(id, reason).await?))
            }
            PlaneRequest::Rerun { id, from } => now(view::run_json(&plane.rerun(id, from).await?)),
            PlaneRequest::Approvals { limit } => {
                let jobs = plane.approvals(*limit as usize).await?;
                now(jobs.iter().map(view::job_json).collect())
            }
            PlaneRequest::Approve { id, verdict } => now(view::job_json(&plane.approve(id, verdict).await?)),
            PlaneRequest::Reject { id, verdict } => now(view::job_json(&plane.reject(id, verdict).await?)),
            PlaneRequest::Repair { id, payload, verdict } => {
                now(view::job_json(&plane.repair(id, payload.clone(), verdict).await?))
            }
        })
    }

    fn to_request_error(&self, question: &PlaneRequest, error: PlaneError) -> RequestError {
        if is_refusal(error.code().status()) {
            return RequestError::Refused {
                code: error.code().as_str().to_owned(),
                detail: error.to_string(),
            };
        }
        let what = question.description();
        RequestError::Failed(match error {
            PlaneError::Invalid(invalid) => invalid.into(),
            PlaneError::Store(failure) => {
                anyhow!("cannot {what} at {}: {failure}\n{}", self.jobs, retry_advice(failure.unknown))
            }
            // The work starts only under the lock, so without it nothing was changed.
            PlaneError::Lock(error) => {
                anyhow!("cannot {what} at {}: {error}\n{}", self.locks, retry_advice(false))
            }
            other => anyhow!("cannot {what}: {other}\n{}", retry_advice(true)),
        })
    }
}

/// A repeated cancel succeeds; a job that has ended in another state is a conflict.
fn cancel_response(id: &str, cancelled: CancelResponse) -> Result<PlaneResponse, PlaneError> {
    let (job, came) = match cancelled {
        CancelResponse::Requested(job) => (job, EffectTime::Later),
        CancelResponse::Cancelled(job) => (job, EffectTime::Now),
        CancelResponse::AlreadyEnded(job) if job.state == JobState::Cancelled => (job, EffectTime::Now),
        CancelResponse::AlreadyEnded(job) => {
            return Err(PlaneError::Conflict {
                code: ErrorCode::Terminal,
                what: format!("job {id} has ended as {}", job.state),
            });
        }
        // `Cancelled` is non-exhaustive. A variant of a later version is some end of the job.
        _ => {
            return Err(PlaneError::Conflict {
                code: ErrorCode::Terminal,
                what: format!("job {id} can no longer be cancelled"),
            });
        }
    };
    Ok(PlaneResponse { view: view::job_json(&job), effect: came })
}
