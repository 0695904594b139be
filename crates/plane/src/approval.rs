//! Approvals: a person approves or rejects a job, or repairs its payload first.
//!
//! A decision takes the same lock as the scheduler, `job:<id>`, so the two never write at once. Each
//! refusal has a code of its own, because each one needs a different reaction from the person or the UI.

use leasehold_core::{Hold, InvalidInput};
use leasehold_wire::ErrorCode;
use serde::Serialize;
use serde_json::Value;

use crate::error::PlaneError;
use crate::job::{Job, add_requester, check_payload, job_lock_name};
use crate::plane::Plane;
use crate::scheduler::while_held;
use crate::state::JobState;

const APPROVAL_CLASS: &str = "approval";

/// A person's decision about a job.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionRequest {
    /// The person that decides. Must not be empty.
    pub by: String,
    /// The reason, kept in the job's history. Must not be empty.
    pub reason: String,
    /// The snapshot of the job that the person saw. A repair changes it, and the decision is then refused.
    pub snapshot: String,
}

impl Plane {
    /// The jobs that wait for an approval.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn approvals(&self, limit: usize) -> Result<Vec<Job>, PlaneError> {
        self.jobs(&[JobState::ApprovalRequired], None, limit).await
    }

    /// Approves the job: it may run.
    ///
    /// # Errors
    /// A refusal with a code for each reaction, or the store did not respond.
    pub async fn approve(&self, id: &str, verdict: &DecisionRequest) -> Result<Job, PlaneError> {
        self.decide(id, verdict, |job| job.approve(&verdict.by, &verdict.reason)).await
    }

    /// Rejects the job: it ends as DENIED.
    ///
    /// # Errors
    /// A refusal with a code for each reaction, or the store did not respond.
    pub async fn reject(&self, id: &str, verdict: &DecisionRequest) -> Result<Job, PlaneError> {
        self.decide(id, verdict, |job| job.reject(&verdict.by, &verdict.reason)).await
    }

    /// Replaces the job's payload. An approval must then name the new snapshot and come from another principal.
    ///
    /// # Errors
    /// A refusal with a code for each reaction, or the store did not respond.
    pub async fn repair(
        &self,
        id: &str,
        payload: Value,
        verdict: &DecisionRequest,
    ) -> Result<Job, PlaneError> {
        check_payload(&payload)?;
        self.decide(id, verdict, |job| {
            let mut change = job.repair(payload, &verdict.by, &verdict.reason);
            // Not among the requesters: the job goes on counting against the quota of the one that asked for it.
            add_requester(&mut change.job.repairers, &self.recorded_principal());
            change
        })
        .await
    }

    /// Checks a decision against the job as it is now, and changes nothing.
    ///
    /// # Errors
    /// The refusal that the decision itself would get, or the store did not respond.
    pub async fn check_decision(&self, id: &str, verdict: &DecisionRequest) -> Result<(), PlaneError> {
        check_texts(verdict)?;
        self.check_actionable(&self.writer.job(id).await?, verdict)
    }

    async fn decide(
        &self,
        id: &str,
        verdict: &DecisionRequest,
        change: impl FnOnce(&Job) -> crate::job::JobChange,
    ) -> Result<Job, PlaneError> {
        check_texts(verdict)?;
        let hold = match self.writer.lock(APPROVAL_CLASS, job_lock_name(id)?, None).await {
            // After an approval the scheduler may hold the lock for as long as the job runs. A repeated
            // decision must not wait for that: its response is known from the document.
            Err(PlaneError::Busy { busy, retry_after, .. }) => {
                self.check_actionable(&self.writer.job(id).await?, verdict)?;
                return Err(PlaneError::Busy { code: ErrorCode::ApprovalRetryableLock, busy, retry_after });
            }
            other => other?,
        };
        let out = while_held(&hold, self.decide_locked(&hold, id, verdict, change)).await;
        hold.release().await;
        out
    }

    async fn decide_locked(
        &self,
        hold: &Hold,
        id: &str,
        verdict: &DecisionRequest,
        change: impl FnOnce(&Job) -> crate::job::JobChange,
    ) -> Result<Job, PlaneError> {
        let job = self.writer.job(id).await?;
        self.check_actionable(&job, verdict)?;
        let mut change = change(&job).requested_by(Some(self.recorded_principal()));
        change.self_approval = self.is_requester_of(&job);
        self.writer.apply(hold, &job, change).await
    }

    /// Whether this handle acts for a principal that requested the job. On the store itself there are no
    /// principals to compare.
    fn is_requester_of(&self, job: &Job) -> bool {
        self.principal.as_deref().is_some_and(|principal| job.is_requested_by(principal))
    }

    fn check_actionable(&self, job: &Job, verdict: &DecisionRequest) -> Result<(), PlaneError> {
        check_undecided(job, verdict)?;
        if self.is_requester_of(job) && !self.writer.settings.allow_self_approval {
            let what = format!(
                "you submitted job {}, had it done again or changed it, so another principal must decide about it",
                job.id
            );
            return Err(PlaneError::Conflict { code: ErrorCode::SelfApproval, what });
        }
        Ok(())
    }
}

fn check_texts(verdict: &DecisionRequest) -> Result<(), InvalidInput> {
    for (field, text) in [("by", &verdict.by), ("reason", &verdict.reason)] {
        // Decisions are audited: an empty name or reason would be worthless later.
        if text.trim().is_empty() {
            return Err(InvalidInput::new(field, text, "must not be empty"));
        }
    }
    Ok(())
}

fn check_undecided(job: &Job, verdict: &DecisionRequest) -> Result<(), PlaneError> {
    let refuse = |code, what: String| Err(PlaneError::Conflict { code, what });
    // Checked before the state: after an approval the state is no longer APPROVAL_REQUIRED, and the
    // repeated caller should learn the decision instead.
    if let Some(made) = &job.decision {
        return Err(PlaneError::AlreadyDecided {
            id: job.id.clone(),
            approved: made.approved,
            by: made.by.clone(),
            reason: made.reason.clone(),
        });
    }
    if job.state.is_terminal() {
        return refuse(ErrorCode::Terminal, format!("job {} has ended as {}", job.id, job.state));
    }
    if job.state != JobState::ApprovalRequired {
        let what = format!("job {} is {} and waits for no approval", job.id, job.state);
        return refuse(ErrorCode::NotActionable, what);
    }
    if verdict.snapshot != job.snapshot() {
        // Without the new snapshot: whoever decides must have looked at it.
        let what = format!("job {} is not what was looked at: read it again, with its new snapshot", job.id);
        return refuse(ErrorCode::StaleSnapshot, what);
    }
    Ok(())
}
