//! The client API: submit, read, cancel and replay jobs. Scheduler and engine do the work.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::rng::{OsRandom, SharedRandom};
use leasehold_wire::ErrorCode;

use crate::cancel_request::CancelRequest;
use crate::error::PlaneError;
use crate::events::{LogObserver, PlaneObserver};
use crate::fenced_writer::FencedWriter;
use crate::job::{DeadLetter, Job, JobSpec, add_requester, check_new_id, dispatch_message, job_lock_name};
use crate::quota::PlaneQuotas;
use crate::scheduler::while_held;
use crate::settings::Settings;
use crate::state::JobState;
use crate::store::{
    DocumentEvent, DocumentKey, DocumentKind, DocumentPage, DocumentPosition, DocumentQuery, DocumentScope,
    SharedPlaneStore, WriteRefusal, WriteResponse,
};

/// The plane's client API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plane {
    pub(crate) writer: FencedWriter,
    /// The authenticated principal on whose behalf this handle acts.
    pub(crate) principal: Option<Arc<str>>,
    /// What the principal may have at once.
    pub(crate) quotas: Option<PlaneQuotas>,
}

/// Recorded where a principal belongs, if the plane is used on its store directly.
pub(crate) const UNAUTHENTICATED: &str = "unauthenticated";

/// The response to a submit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SubmitResponse {
    /// The job, as read back from the store after the write.
    pub job: Job,
    /// A job with the same id or key existed already; this submit changed nothing.
    pub repeated: bool,
}

/// The response to a cancel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CancelResponse {
    /// This call cancelled the job.
    Cancelled(Job),
    /// A replica works on the job. The request is stored, and that replica will stop the work.
    Requested(Job),
    /// The job had ended before.
    AlreadyEnded(Job),
}

impl CancelResponse {
    /// The job, and whether its owner was only asked to stop. A repeated cancel succeeds.
    ///
    /// # Errors
    /// `terminal`: the job has ended in another state.
    pub fn into_job(self) -> Result<(Job, bool), PlaneError> {
        match self {
            Self::Cancelled(job) => Ok((job, false)),
            Self::Requested(job) => Ok((job, true)),
            Self::AlreadyEnded(job) if job.state == JobState::Cancelled => Ok((job, false)),
            Self::AlreadyEnded(job) => Err(PlaneError::Conflict {
                code: ErrorCode::Terminal,
                what: format!("job {} has ended as {}", job.id, job.state),
            }),
        }
    }
}

impl Plane {
    /// A plane on these locks and this store.
    ///
    /// # Errors
    /// A setting is out of range or contradicts another one.
    pub fn new(locks: Locks, store: SharedPlaneStore, settings: Settings) -> Result<Self, PlaneError> {
        Self::with_observers(locks, store, settings, OsRandom::shared(), vec![Arc::new(LogObserver)])
    }

    /// The same with another random source and other event observers.
    ///
    /// # Errors
    /// A setting is out of range or contradicts another one.
    pub fn with_observers(
        locks: Locks,
        store: SharedPlaneStore,
        settings: Settings,
        random: SharedRandom,
        observers: Vec<Arc<dyn PlaneObserver>>,
    ) -> Result<Self, PlaneError> {
        settings.check()?;
        Ok(Self {
            writer: FencedWriter {
                locks,
                store,
                random,
                settings: Arc::new(settings),
                observers: observers.into(),
                message_sent: Arc::default(),
            },
            principal: None,
            quotas: None,
        })
    }

    /// The same plane, acting for an authenticated principal. Submits, starts, decisions and cancels made
    /// through it are recorded with the principal; without one, as `unauthenticated`.
    #[must_use]
    pub fn acting_for(&self, principal: &str) -> Self {
        Self { principal: Some(principal.into()), ..self.clone() }
    }

    /// The principal to record.
    pub(crate) fn recorded_principal(&self) -> String {
        self.principal.as_deref().unwrap_or(UNAUTHENTICATED).to_owned()
    }

    /// The writer that all changes go through, for code that extends the plane.
    #[must_use]
    pub fn writer(&self) -> &FencedWriter {
        &self.writer
    }

    /// The lock client under which the plane acts.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.writer.locks
    }

    /// The timeouts, intervals and limits of this plane.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.writer.settings
    }

    /// Submits a job. With an id or a key, a repeated submit creates no second job.
    ///
    /// # Errors
    /// A field is invalid; the id or key belongs to a different job (`different_job`); or the store
    /// did not respond.
    pub async fn submit(&self, spec: JobSpec) -> Result<SubmitResponse, PlaneError> {
        spec.check()?;
        let key = spec.key.as_deref().map(|key| DocumentKey::scoped(spec.key_scope(), key));
        let id = spec.id.clone().unwrap_or_else(|| self.writer.new_id_in(&spec.tenant));
        if spec.id.is_some()
            && let Err(refused) = check_new_id(&spec)
        {
            // Earlier versions allowed such ids: a submit that is repeated still finds its job.
            let there = self.writer.find_job(&id).await?.ok_or(refused)?;
            return repeated_id(there, &Job::new(id, spec, None));
        }
        self.create(id, spec, key, None).await
    }

    /// Checks a submit, and changes nothing. Returns what a repeated submit finds; `None` if the submit would
    /// create a job.
    ///
    /// # Errors
    /// The same as for [`submit`](Self::submit).
    pub async fn check_submit(&self, spec: &JobSpec) -> Result<Option<SubmitResponse>, PlaneError> {
        spec.check()?;
        let id = spec.id.clone().unwrap_or_else(|| self.writer.new_id_in(&spec.tenant));
        job_lock_name(&id)?;
        self.writer.locks.policies().class(&spec.class, self.writer.locks.clock().now())?;
        let wanted = Job::new(id, spec.clone(), None);
        if let Some(there) = self.writer.find_job(&wanted.id).await? {
            return repeated_id(there, &wanted).map(Some);
        }
        check_new_id(spec)?;
        if let Some(key) = spec.key.as_deref().map(|key| DocumentKey::scoped(spec.key_scope(), key))
            && let Some(id) =
                self.writer.call(self.writer.store.find_id_by_key(DocumentKind::Job, &key)).await?
        {
            return repeated_submit(self.writer.job(&id).await?, &wanted).map(Some);
        }
        self.check_quota(DocumentKind::Job).await?;
        Ok(None)
    }

    async fn create(
        &self,
        id: String,
        spec: JobSpec,
        key: Option<DocumentKey>,
        retried: Option<Requesters>,
    ) -> Result<SubmitResponse, PlaneError> {
        // A generated id contains the tenant, and may be too long for a lock name.
        job_lock_name(&id)?;
        // An unknown class must be refused here: later, only a scheduler would see the error, not the client.
        let now = self.writer.locks.clock().now();
        self.writer.locks.policies().class(&spec.class, now)?;
        let mut job = Job::new(id, spec, None);
        match retried {
            None => job.submitted_by = Some(self.recorded_principal()),
            Some(of) => {
                job.submitted_by = of.submitted_by;
                job.requesters = of.requesters;
                // The payload that they changed is done again.
                job.repairers = of.repairers;
                // Beside the submitter: otherwise a retry by another one would allow it to decide.
                add_requester(&mut job.requesters, &self.recorded_principal());
            }
        }
        // A job that waits for approval gets no message: the approval itself sends it.
        let send = match job.state {
            JobState::Pending => vec![dispatch_message(&job, Duration::ZERO)],
            _ => Vec::new(),
        };
        match self.writer.create_job(&job, key, self.quota(DocumentKind::Job), send).await? {
            WriteResponse::Applied { repeated, .. } => {
                Ok(SubmitResponse { job: self.writer.job(&job.id).await?, repeated })
            }
            WriteResponse::Refused(WriteRefusal::Exists) => {
                repeated_id(self.writer.job(&job.id).await?, &job)
            }
            // The store matches keys within one scope only, so this job is the caller's to see.
            WriteResponse::Refused(WriteRefusal::KeyInUse { id }) => {
                repeated_submit(self.writer.job(&id).await?, &job)
            }
            WriteResponse::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// Reads one job by its id.
    ///
    /// # Errors
    /// The job does not exist, or the store did not respond.
    pub async fn job(&self, id: &str) -> Result<Job, PlaneError> {
        self.writer.job(id).await
    }

    /// The events of a job, oldest first.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn job_history(&self, id: &str) -> Result<Vec<DocumentEvent>, PlaneError> {
        Ok(self.writer.call(self.writer.store.history(DocumentKind::Job, id)).await?)
    }

    /// Jobs in these states (all if none is given) and of this topic, the earliest due time first.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn jobs(
        &self,
        states: &[JobState],
        topic: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Job>, PlaneError> {
        Ok(self.job_page(states, topic, None, None, limit).await?.documents)
    }

    /// A page of these jobs: only those in the scope, and after the position, if given.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn job_page(
        &self,
        states: &[JobState],
        topic: Option<&str>,
        scope: Option<&DocumentScope>,
        after: Option<DocumentPosition>,
        limit: usize,
    ) -> Result<DocumentPage<Job>, PlaneError> {
        let all: Vec<_> = JobState::all().collect();
        let states = if states.is_empty() { &all } else { states };
        let query = DocumentQuery {
            index_key: topic.map(str::to_owned),
            scope: scope.cloned(),
            after,
            ..DocumentQuery::new(DocumentKind::Job, states.iter().map(|state| state.as_str()), limit)
        };
        let page = self.writer.call(self.writer.store.page(&query)).await?;
        page.try_map(|doc| Ok(Job::read(doc)?))
    }

    /// How many jobs are in each state.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, PlaneError> {
        let mut tally = Vec::new();
        for state in JobState::all() {
            let query = DocumentQuery::new(DocumentKind::Job, [state.as_str()], 0);
            tally.push((state, self.writer.call(self.writer.store.count(&query)).await?));
        }
        Ok(tally)
    }

    /// Cancels a job. If a replica works on it, the request is stored and that replica cancels it.
    ///
    /// # Errors
    /// The job does not exist, or the store did not respond.
    pub async fn cancel(&self, id: &str, why: &str) -> Result<CancelResponse, PlaneError> {
        let job = self.writer.job(id).await?;
        if job.state.is_terminal() {
            return Ok(CancelResponse::AlreadyEnded(job));
        }
        // An active job's owner keeps the lock until the attempt ends, so waiting for it is pointless.
        let wait = job.state.is_active().then_some(Duration::ZERO);
        let hold = match self.writer.lock(&job.spec.class, job.lock_name()?, wait).await {
            Ok(hold) => hold,
            Err(PlaneError::Busy { .. }) => {
                let request =
                    CancelRequest { reason: why.to_owned(), principal: Some(self.recorded_principal()) };
                self.writer.request_cancel(id, &request).await?;
                return Ok(CancelResponse::Requested(job));
            }
            Err(error) => return Err(error),
        };
        let cancel = async {
            // Read again under the lock: the first read may be stale by now.
            let job = self.writer.job(id).await?;
            if job.state.is_terminal() {
                return Ok(CancelResponse::AlreadyEnded(job));
            }
            let change = job.cancel(why).requested_by(Some(self.recorded_principal()));
            Ok(CancelResponse::Cancelled(self.writer.apply(&hold, &job, change).await?))
        };
        let out = while_held(&hold, cancel).await;
        hold.release().await;
        out
    }

    async fn dead_job(&self, id: &str) -> Result<(Job, DeadLetter), PlaneError> {
        let job = self.writer.job(id).await?;
        let Some(dead) = job.dead.clone() else {
            return Err(PlaneError::Conflict {
                code: ErrorCode::NotDead,
                what: format!("job {id} is {} and was not given up: there is nothing to replay", job.state),
            });
        };
        Ok((job, dead))
    }

    /// Checks that a job can be submitted again, and changes nothing.
    ///
    /// # Errors
    /// The same as for [`replay`](Self::replay).
    pub async fn check_replay(&self, id: &str) -> Result<(), PlaneError> {
        self.dead_job(id).await.map(drop)
    }

    /// Submits a dead job again, as a new job. Repeated calls create only one new job.
    ///
    /// # Errors
    /// `not_dead`: the job has no dead letter. Or it does not exist, or the store did not respond.
    pub async fn replay(&self, id: &str) -> Result<SubmitResponse, PlaneError> {
        let (job, dead) = self.dead_job(id).await?;
        let scope = job.key_scope().to_owned();
        let before = Requesters {
            submitted_by: job.submitted_by,
            requesters: job.requesters,
            repairers: job.repairers,
        };
        let mut spec = job.spec;
        spec.labels.insert("replay-of".into(), id.to_owned());
        spec.labels.insert("died-of".into(), dead.reason);
        // A fresh id, because the dead job keeps its own; the key makes a second replay a repetition.
        (spec.id, spec.key) = (None, None);
        let new_id = self.writer.new_id_in(&scope);
        let key = DocumentKey::engine(spec.key_scope(), &format!("replay:{id}"));
        let replayed = self.create(new_id, spec, Some(key), Some(before)).await?;
        // Earlier versions let callers choose such a key, for any job.
        if replayed.job.spec.labels.get("replay-of").is_none_or(|of| of != id) {
            let what = format!("another job has the key of this replay: submit the work of job {id} anew");
            return Err(PlaneError::Conflict { code: ErrorCode::DifferentJob, what });
        }
        Ok(replayed)
    }
}

/// The principals that a new job takes over from the one that it repeats.
struct Requesters {
    submitted_by: Option<String>,
    requesters: Vec<String>,
    repairers: Vec<String>,
}

/// The response to a submit whose id a job has already.
fn repeated_id(there: Job, wanted: &Job) -> Result<SubmitResponse, PlaneError> {
    // A job of another scope is not described to this caller.
    if there.key_scope() != wanted.key_scope() {
        let what = format!("the id {} is taken; choose another one", wanted.id);
        return Err(PlaneError::Conflict { code: ErrorCode::DifferentJob, what });
    }
    repeated_submit(there, wanted)
}

fn repeated_submit(there: Job, wanted: &Job) -> Result<SubmitResponse, PlaneError> {
    // Only these fields are compared. The id may have been generated the first time, and an
    // approver may have repaired the payload since.
    let same = there.spec.work == wanted.spec.work
        && there.spec.topic == wanted.spec.topic
        && there.spec.tenant == wanted.spec.tenant
        // The engine made it, so no submit did.
        && there.parent.is_none();
    if same {
        return Ok(SubmitResponse { job: there, repeated: true });
    }
    let id = there.id;
    Err(PlaneError::Conflict {
        code: ErrorCode::DifferentJob,
        what: format!("job {id} has this id or key already and does other work; choose another one"),
    })
}
