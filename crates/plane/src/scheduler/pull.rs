//! Pull workers: claim, heartbeat and result, each with the attempt number and fence of the claim.
//!
//! A worker holds no lock between its calls. The claim in the job's document makes it the owner; each
//! call acquires the job's lock for its one write. A worker without heartbeats loses the claim. Its
//! later calls carry an attempt or fence that no longer matches, and are refused.

use std::time::Duration;

use leasehold_core::{Fence, Hold};
use leasehold_wire::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Scheduler;
use super::delivery::while_held;
use crate::error::PlaneError;
use crate::events::PlaneEvent;
use crate::fenced_writer::FencedWriter;
use crate::job::{Job, Owner, Work};
use crate::state::JobState;
use crate::store::{DocumentKind, DocumentQuery};

/// How many jobs one claim tries: other workers may have claimed the first ones meanwhile.
const MAX_CLAIM_CANDIDATES: usize = 16;

/// The identity of a claim. A worker sends it with each call, so that an old claim is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The job's id.
    pub job: String,
    /// The attempt that the worker claimed.
    pub attempt: u32,
    /// The fence of the claim. The worker should send it with each external write of the work.
    pub fence: Option<Fence>,
}

/// A job that a worker has claimed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ClaimedJob {
    /// To be sent with each further call.
    pub claim: Claim,
    /// The job as claimed, in state RUNNING.
    pub job: Job,
    /// The next heartbeat or the result must arrive within this time.
    pub heartbeat: Duration,
}

/// The response to a result.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReportResponse {
    /// The job after the call.
    pub job: Job,
    /// The job had already ended; the call changed nothing.
    pub repeated: bool,
}

impl Scheduler {
    /// Claims a job of a topic for a worker; `None` if no job waits.
    ///
    /// # Errors
    /// A store did not respond.
    pub async fn claim(&self, topic: &str, worker: &str) -> Result<Option<ClaimedJob>, PlaneError> {
        let query = DocumentQuery {
            index_key: Some(topic.to_owned()),
            ..DocumentQuery::new(DocumentKind::Job, [JobState::Dispatched.as_str()], MAX_CLAIM_CANDIDATES)
        };
        for doc in self.writer.call(self.writer.store.list(&query)).await? {
            let job = Job::read(&doc)?;
            if job.spec.work != Work::Pull {
                continue;
            }
            let hold = match self
                .writer
                // No waiting: there are other candidates, and a busy lock means that this one is being claimed.
                .lock(&job.spec.class, job.lock_name()?, Some(Duration::ZERO))
                .await
            {
                Ok(hold) => hold,
                // Another worker is claiming it.
                Err(PlaneError::Busy { .. }) => continue,
                Err(error) => return Err(error),
            };
            let claimed = while_held(&hold, self.claim_locked(&hold, &job.id, worker)).await;
            hold.release().await;
            match claimed {
                Ok(Some(claimed)) => return Ok(Some(claimed)),
                Ok(None) | Err(PlaneError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn claim_locked(
        &self,
        hold: &Hold,
        id: &str,
        worker: &str,
    ) -> Result<Option<ClaimedJob>, PlaneError> {
        let writer = &self.writer;
        let job = writer.job(id).await?;
        // Read again under the lock: another worker may have claimed it since the list was read.
        if job.state != JobState::Dispatched {
            return Ok(None);
        }
        if let Some(why) = writer.open_cancel_reason(id).await? {
            writer.apply(hold, &job, job.cancel(&why)).await?;
            return Ok(None);
        }
        let fence = hold.fence_if_any()?;
        let owner = Owner { who: worker.to_owned(), fence };
        let heartbeat = writer.settings.heartbeat_timeout;
        let job = writer.apply(hold, &job, job.start(owner, Some(heartbeat))).await?;
        let claim = Claim { job: job.id.clone(), attempt: job.attempt, fence };
        Ok(Some(ClaimedJob { claim, job, heartbeat }))
    }

    /// Extends the claim. Returns the time until the next heartbeat is due.
    ///
    /// # Errors
    /// `stale_claim`: the worker has lost the job and should stop. Or a store did not respond.
    pub async fn heartbeat(&self, claim: &Claim) -> Result<Duration, PlaneError> {
        let writer = &self.writer;
        let hold = writer.lock_job(&claim.job).await?;
        let beat = async {
            let job = writer.job(&claim.job).await?;
            claim.check(&job)?;
            let heartbeat = writer.settings.heartbeat_timeout;
            writer.apply(&hold, &job, job.heartbeat(heartbeat)).await?;
            Ok(heartbeat)
        };
        let out = while_held(&hold, beat).await;
        hold.release().await;
        out
    }

    /// Reports the end of the work. A repeated report changes nothing.
    ///
    /// # Errors
    /// `stale_claim`: the worker has lost the job. Or a store did not respond: report again.
    pub async fn report(
        &self,
        claim: &Claim,
        result: Result<Value, String>,
    ) -> Result<ReportResponse, PlaneError> {
        let writer = &self.writer;
        let hold = writer.lock_job(&claim.job).await?;
        let report = async {
            let job = writer.job(&claim.job).await?;
            // Before the claim check: a worker that repeats its report after a lost response must succeed,
            // although the job is not RUNNING any more.
            if job.state.is_terminal() && job.attempt == claim.attempt {
                writer.locks.report_duplicate(hold.class(), hold.name());
                writer.emit(&PlaneEvent::DuplicateTerminal { job: job.id.clone() });
                return Ok(ReportResponse { job, repeated: true });
            }
            claim.check(&job)?;
            let change = match result {
                Ok(value) => job.succeed(value),
                Err(why) => job.fail(&why, &*writer.random),
            };
            let job = writer.apply(&hold, &job, change).await?;
            Ok(ReportResponse { job, repeated: false })
        };
        let out = while_held(&hold, report).await;
        hold.release().await;
        out
    }
}

impl Claim {
    fn check(&self, job: &Job) -> Result<(), PlaneError> {
        let owner = job.owner.as_ref();
        let ours = job.state == JobState::Running
            && job.attempt == self.attempt
            // Both must match: the number alone can be guessed, and without the lock store there is no fence.
            && owner.is_some_and(|owner| owner.fence == self.fence);
        if ours {
            return Ok(());
        }
        Err(PlaneError::Conflict {
            code: ErrorCode::StaleClaim,
            what: format!(
                "attempt {} at job {} is over: it is {} now, in attempt {}; stop working on it",
                self.attempt, self.job, job.state, job.attempt
            ),
        })
    }
}

impl FencedWriter {
    /// Acquires the lock of a job, under the job's own class.
    pub(crate) async fn lock_job(&self, id: &str) -> Result<Hold, PlaneError> {
        let job = self.job(id).await?;
        self.lock(&job.spec.class, job.lock_name()?, None).await
    }
}
