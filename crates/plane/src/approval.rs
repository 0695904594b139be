//! Approvals: a person says yes or no, or mends what is to be run first.
//!
//! They take the very lock that the scheduler takes, `job:<id>`, so that the two never write at once. Each refusal has a
//! code of its own, because a person (or the page in front of one) has to do something different about each.

use leasehold_core::Hold;
use serde_json::Value;

use crate::error::PlaneError;
use crate::job::{Job, lock_of};
use crate::plane::Plane;
use crate::scheduler::guarded;
use crate::state::JobState;

/// The class approvals are made under.
const CLASS: &str = "approval";

/// Who decides, and why.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The person.
    pub by: String,
    /// The reason. Never empty: somebody will want to know.
    pub reason: String,
    /// The snapshot of the job that the person has seen; a job that was repaired since has another one.
    pub snapshot: Option<String>,
}

/// What a person has to do about a refusal.
pub mod code {
    /// It was approved before. Nothing is left to do.
    pub const ALREADY_APPROVED: &str = "already_approved";
    /// It was rejected before.
    pub const ALREADY_REJECTED: &str = "already_rejected";
    /// It has changed since it was looked at. Look again.
    pub const STALE_SNAPSHOT: &str = "stale_snapshot";
    /// It has ended.
    pub const TERMINAL: &str = "terminal";
    /// It does not wait for anyone.
    pub const NOT_ACTIONABLE: &str = "not_actionable";
    /// Somebody else is deciding at this very moment. Come again.
    pub const RETRYABLE_LOCK: &str = "approval_retryable_lock";
}

impl Plane {
    /// The jobs that wait for a person.
    ///
    /// # Errors
    /// No answer.
    pub async fn approvals(&self, limit: usize) -> Result<Vec<Job>, PlaneError> {
        self.jobs(&[JobState::ApprovalRequired], None, limit).await
    }

    /// Lets the job run.
    ///
    /// # Errors
    /// A [`code`] that says what to do, or no answer.
    pub async fn approve(&self, id: &str, verdict: &Verdict) -> Result<Job, PlaneError> {
        self.decide(id, verdict, |job| job.approve(&verdict.by, &verdict.reason))
            .await
    }

    /// Does not let it run.
    ///
    /// # Errors
    /// A [`code`] that says what to do, or no answer.
    pub async fn reject(&self, id: &str, verdict: &Verdict) -> Result<Job, PlaneError> {
        self.decide(id, verdict, |job| job.reject(&verdict.by, &verdict.reason))
            .await
    }

    /// Changes what the job would do. Whoever approves it must have seen the new version.
    ///
    /// # Errors
    /// A [`code`] that says what to do, or no answer.
    pub async fn repair(&self, id: &str, payload: Value, verdict: &Verdict) -> Result<Job, PlaneError> {
        self.decide(id, verdict, |job| {
            job.repair(payload, &verdict.by, &verdict.reason)
        })
        .await
    }

    async fn decide(
        &self,
        id: &str,
        verdict: &Verdict,
        change: impl FnOnce(&Job) -> crate::job::Change,
    ) -> Result<Job, PlaneError> {
        for (field, text) in [("by", &verdict.by), ("reason", &verdict.reason)] {
            if text.trim().is_empty() {
                return Err(leasehold_core::Invalid::new(field, text.clone(), "must not be empty").into());
            }
        }
        let hold = match self.ledger.lock(CLASS, lock_of(id)?, None).await {
            // A repetition must not wait for the scheduler to be done with the job: its answer is known.
            Err(PlaneError::Busy {
                busy, retry_after, ..
            }) => {
                actionable(&self.ledger.job(id).await?, verdict)?;
                return Err(PlaneError::Busy {
                    code: code::RETRYABLE_LOCK,
                    busy,
                    retry_after,
                });
            }
            other => other?,
        };
        let out = guarded(&hold, self.decide_under(&hold, id, verdict, change)).await;
        hold.release().await;
        out
    }

    async fn decide_under(
        &self,
        hold: &Hold,
        id: &str,
        verdict: &Verdict,
        change: impl FnOnce(&Job) -> crate::job::Change,
    ) -> Result<Job, PlaneError> {
        let job = self.ledger.job(id).await?;
        actionable(&job, verdict)?;
        self.ledger.apply(hold, &job, change(&job)).await
    }
}

/// May this be decided now?
fn actionable(job: &Job, verdict: &Verdict) -> Result<(), PlaneError> {
    let refuse = |code, what: String| Err(PlaneError::Conflict { code, what });
    if let Some(made) = &job.decision {
        return Err(PlaneError::Decided {
            id: job.id.clone(),
            approved: made.approved,
            by: made.by.clone(),
            reason: made.reason.clone(),
        });
    }
    if job.state.ended() {
        return refuse(
            code::TERMINAL,
            format!("job {} has ended as {}", job.id, job.state),
        );
    }
    if job.state != JobState::ApprovalRequired {
        let what = format!("job {} is {} and waits for no approval", job.id, job.state);
        return refuse(code::NOT_ACTIONABLE, what);
    }
    if let Some(seen) = &verdict.snapshot
        && *seen != job.snapshot()
    {
        let what = format!(
            "job {} has changed since it was looked at: its snapshot is {} now",
            job.id,
            job.snapshot()
        );
        return refuse(code::STALE_SNAPSHOT, what);
    }
    Ok(())
}
