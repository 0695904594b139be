//! Pull workers: claim, heartbeat and result, each with the attempt number, fence and secret of the claim.
//!
//! A worker holds no lock between its calls. The claim in the job's document makes it the owner; each
//! call acquires the job's lock for its one write. A worker without heartbeats loses the claim. Its
//! later calls carry an attempt or fence that no longer matches, and are refused.

use std::fmt;
use std::time::Duration;

use leasehold_core::rng::RandomExt;
use leasehold_core::{Fence, Hold};
use leasehold_wire::{ErrorCode, Secret};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Scheduler;
use super::delivery::while_held;
use crate::error::PlaneError;
use crate::events::PlaneEvent;
use crate::fenced_writer::FencedWriter;
use crate::job::{ClaimSeal, Job, Owner, Work};
use crate::plane::UNAUTHENTICATED;
use crate::state::JobState;
use crate::store::{Document, DocumentScope};

/// A worker's request for a job of a topic.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ClaimRequest<'a> {
    topic: &'a str,
    worker: &'a str,
    principal: Option<&'a str>,
    scope: Option<&'a DocumentScope>,
    filter: Option<&'a (dyn Fn(&Job) -> bool + Send + Sync)>,
}

impl<'a> ClaimRequest<'a> {
    /// Any job of the topic, for the worker of this name.
    #[must_use]
    pub fn new(topic: &'a str, worker: &'a str) -> Self {
        Self { topic, worker, principal: None, scope: None, filter: None }
    }

    /// The authenticated principal of the worker. Only the same one can use the claim.
    #[must_use]
    pub fn principal(mut self, principal: &'a str) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Only jobs of this scope. The store leaves the others out, however many there are.
    #[must_use]
    pub fn scope(mut self, scope: &'a DocumentScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Only jobs for which the filter returns true.
    #[must_use]
    pub fn filter(mut self, filter: &'a (dyn Fn(&Job) -> bool + Send + Sync)) -> Self {
        self.filter = Some(filter);
        self
    }
}

impl fmt::Debug for ClaimRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimRequest")
            .field("topic", &self.topic)
            .field("worker", &self.worker)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// The identity of a claim. A worker sends it with each call, so that an old or a foreign claim is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claim {
    /// The job's id.
    pub job: String,
    /// The attempt that the worker claimed.
    pub attempt: u32,
    /// The fence of the claim. The worker should send it with each external write of the work.
    pub fence: Option<Fence>,
    /// Known to the claiming worker only: attempt and fence are shown with the job. None for claims of
    /// earlier versions.
    pub secret: Option<Secret>,
    /// The authenticated principal of the worker, the same as when it claimed the job.
    pub principal: Option<String>,
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
    pub async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Option<ClaimedJob>, PlaneError> {
        let mut search = self.candidates(request.topic, request.scope);
        while let Some(page) = search.next_page().await? {
            for candidate in &page {
                if let Some(claimed) = self.claim_candidate(candidate, request).await? {
                    search.end_at(candidate);
                    return Ok(Some(claimed));
                }
            }
        }
        Ok(None)
    }

    /// Claims this job, if it can be claimed.
    async fn claim_candidate(
        &self,
        doc: &Document,
        request: &ClaimRequest<'_>,
    ) -> Result<Option<ClaimedJob>, PlaneError> {
        let Some(job) = self.read_candidate(doc) else { return Ok(None) };
        if job.spec.work != Work::Pull || request.filter.is_some_and(|accepts| !accepts(&job)) {
            return Ok(None);
        }
        // No waiting: there are other candidates, and a busy lock means that this one is being claimed.
        let hold = match self.writer.lock(&job.spec.class, job.lock_name()?, Some(Duration::ZERO)).await {
            Ok(hold) => hold,
            Err(PlaneError::Busy { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let claimed = while_held(&hold, self.claim_locked(&hold, &job.id, request)).await;
        hold.release().await;
        match claimed {
            Err(PlaneError::Refused(_)) => Ok(None),
            other => other,
        }
    }

    /// Reads a candidate. One that cannot be used is reported and skipped: the topic's others still can.
    fn read_candidate(&self, doc: &Document) -> Option<Job> {
        let now = self.writer.locks.clock().now();
        let read = Job::read(doc).map_err(|error| error.to_string()).and_then(|job| {
            let class = self.writer.locks.policies().class(&job.spec.class, now);
            class.map(|_| job).map_err(|error| error.to_string())
        });
        read.inspect_err(|error| tracing::warn!(job = %doc.id, %error, "the job cannot be claimed")).ok()
    }

    async fn claim_locked(
        &self,
        hold: &Hold,
        id: &str,
        request: &ClaimRequest<'_>,
    ) -> Result<Option<ClaimedJob>, PlaneError> {
        let writer = &self.writer;
        let job = writer.job(id).await?;
        // Read again under the lock: another worker may have claimed it since the list was read.
        if job.state != JobState::Dispatched {
            return Ok(None);
        }
        if let Some(cancel) = writer.open_cancel_request(id).await? {
            writer.apply(hold, &job, cancel.change(&job)).await?;
            return Ok(None);
        }
        let fence = hold.fence_if_any()?;
        let owner = Owner { who: request.worker.to_owned(), fence };
        let heartbeat = writer.settings.heartbeat_timeout;
        let principal = request.principal.map(str::to_owned);
        let secret = format!("{:032x}", writer.random.wide());
        let seal = ClaimSeal::new(&secret, principal.as_deref().unwrap_or(UNAUTHENTICATED));
        let job = writer.apply(hold, &job, job.start_claimed(owner, seal, heartbeat)).await?;
        let secret = Some(Secret::new(secret));
        let claim = Claim { job: job.id.clone(), attempt: job.attempt, fence, secret, principal };
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
            let change = job.heartbeat(heartbeat).requested_by(Some(claim.principal().to_owned()));
            writer.apply(&hold, &job, change).await?;
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
            if job.state.is_terminal() && job.attempt == claim.attempt && claim.opens(&job) {
                writer.locks.report_duplicate(hold.class(), hold.name());
                writer.emit(&PlaneEvent::DuplicateTerminal { job: job.id.clone() });
                return Ok(ReportResponse { job, repeated: true });
            }
            claim.check(&job)?;
            let change = match result {
                Ok(value) => job.succeed(value),
                Err(why) => job.fail(&why, &*writer.random),
            };
            let change = change.requested_by(Some(claim.principal().to_owned()));
            let job = writer.apply(&hold, &job, change).await?;
            Ok(ReportResponse { job, repeated: false })
        };
        let out = while_held(&hold, report).await;
        hold.release().await;
        out
    }
}

impl Claim {
    /// A claim by its public parts.
    #[must_use]
    pub fn new(job: String, attempt: u32, fence: Option<Fence>) -> Self {
        Self { job, attempt, fence, secret: None, principal: None }
    }

    /// The same claim with its secret.
    #[must_use]
    pub fn with_secret(mut self, secret: Option<Secret>) -> Self {
        self.secret = secret;
        self
    }

    /// The same claim, used by this principal.
    #[must_use]
    pub fn with_principal(mut self, principal: &str) -> Self {
        self.principal = Some(principal.to_owned());
        self
    }

    fn principal(&self) -> &str {
        self.principal.as_deref().unwrap_or(UNAUTHENTICATED)
    }

    /// Whether the secret and the principal are those of the job's latest claim.
    fn opens(&self, job: &Job) -> bool {
        match &job.claim {
            Some(seal) => {
                let secret = self.secret.as_ref().map_or("", Secret::expose);
                seal.opens_with(secret, self.principal())
            }
            // An earlier version claimed it; such a claim has no secret.
            None => job.spec.work == Work::Pull,
        }
    }

    fn check(&self, job: &Job) -> Result<(), PlaneError> {
        let owner = job.owner.as_ref();
        let ours = job.state == JobState::Running
            && job.attempt == self.attempt
            // Both must match: the number alone can be guessed, and without the lock store there is no fence.
            && owner.is_some_and(|owner| owner.fence == self.fence)
            && self.opens(job);
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
