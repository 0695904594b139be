//! The only path by which a replica writes, sends and acknowledges: under a hold, checked on each use.
//!
//! Every function that changes something takes the `&Hold` it acts under. The hold is compared with
//! the clock before *each* try, so an owner that was paused past its lease does nothing after it wakes
//! up. Its fence goes with the write, so the store refuses a write that is already on its way. A write
//! without a response is sent again with the same id, which makes the repetition harmless.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{ClockExt, run_until};
use leasehold_core::rng::{RandomExt, SharedRandom};
use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_core::{Acquired, ClassLocks, Exclusivity, Hold, Locks, Name};
use leasehold_wire::ErrorCode;
use serde_json::json;
use tokio::sync::Notify;

use crate::error::PlaneError;
use crate::events::{PlaneEvent, PlaneObserver};
use crate::job::{DEFAULT_TENANT, Job, JobChange};
use crate::plane::UNAUTHENTICATED;
use crate::settings::Settings;
use crate::state::{INITIAL_STATES, JobState};
use crate::store::{
    Delivery, Disposition, DocumentKey, DocumentKind, Message, OwnerQuota, Revision, SharedPlaneStore,
    WriteRefusal, WriteRequest, WriteResponse,
};

/// The limit that the specification sets for one store call.
const STORE_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a write is tried before its error goes to the caller.
const MAX_WRITE_TRIES: u32 = 4;
/// The delay before the first retry; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The writer that all changes of the plane go through.
#[derive(Debug, Clone)]
pub struct FencedWriter {
    pub(crate) locks: Locks,
    pub(crate) store: SharedPlaneStore,
    pub(crate) random: SharedRandom,
    pub(crate) settings: Arc<Settings>,
    pub(crate) observers: Arc<[Arc<dyn PlaneObserver>]>,
    /// Notified when this process has sent a message, so its own readers need not wait for their poll.
    pub(crate) message_sent: Arc<Notify>,
}

impl FencedWriter {
    pub(crate) fn holder_name(&self) -> String {
        self.locks.holder().as_str().to_owned()
    }

    pub(crate) fn emit(&self, event: &PlaneEvent) {
        for observer in self.observers.iter() {
            observer.on_plane_event(event);
        }
    }

    pub(crate) fn new_id(&self) -> String {
        format!("{:032x}", self.random.wide())
    }

    /// A new id for a document of this scope.
    pub(crate) fn new_id_in(&self, scope: &str) -> String {
        match scope {
            "" | DEFAULT_TENANT => self.new_id(),
            scope => format!("{scope}:{}", self.new_id()),
        }
    }

    /// One store call with a timeout.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let clock = self.locks.clock();
        // A call that timed out may still have taken effect, so the error is *unknown*, not *not done*.
        let answer = run_until(&**clock, clock.now() + STORE_CALL_TIMEOUT, call).await;
        answer.unwrap_or_else(|| {
            Err(StoreError::unknown(
                StoreErrorKind::TimedOut,
                format!("no answer in {} s", STORE_CALL_TIMEOUT.as_secs()),
            ))
        })
    }

    /// Acquires a lock of a class. `wait` overrides the class's own wait time.
    pub(crate) async fn lock(
        &self,
        class: &str,
        name: Name,
        wait: Option<Duration>,
    ) -> Result<Hold, PlaneError> {
        let mut locks = self.locks.class(class);
        if let Some(wait) = wait {
            locks = locks.wait(wait);
        }
        self.acquire(&locks, name).await
    }

    pub(crate) async fn acquire(&self, locks: &ClassLocks, name: Name) -> Result<Hold, PlaneError> {
        // Documents stored before invisible characters were refused must still run, and be cancelled.
        match locks.clone().existing_names().acquire(name).await? {
            Acquired::Held(hold) => Ok(hold),
            Acquired::Busy(busy) => Err(PlaneError::Busy {
                code: ErrorCode::Busy,
                busy: Box::new(busy),
                retry_after: self.settings.busy_redelivery_delay,
            }),
        }
    }

    /// Reads a job.
    ///
    /// # Errors
    /// The store did not respond, or the job does not exist.
    pub async fn job(&self, id: &str) -> Result<Job, PlaneError> {
        let doc = self.call(self.store.read(DocumentKind::Job, id)).await?;
        let doc = doc.ok_or_else(|| PlaneError::NotFound { kind: "job", id: id.to_owned() })?;
        Ok(Job::read(&doc)?)
    }

    /// Writes a change of a job, under that job's own lock.
    ///
    /// # Errors
    /// The hold is lost or belongs to another name, or the store refused or did not respond.
    pub async fn apply(&self, hold: &Hold, seen: &Job, change: JobChange) -> Result<Job, PlaneError> {
        self.apply_with_tries(hold, seen, change, MAX_WRITE_TRIES).await
    }

    // Retries without limit: the work has been done and its result must be stored. While the hold is
    // valid no other replica can write the job, so a late write cannot conflict.
    pub(crate) async fn apply_until_lost(
        &self,
        hold: &Hold,
        seen: &Job,
        change: JobChange,
    ) -> Result<Job, PlaneError> {
        self.apply_with_tries(hold, seen, change, u32::MAX).await
    }

    async fn apply_with_tries(
        &self,
        hold: &Hold,
        seen: &Job,
        change: JobChange,
        tries: u32,
    ) -> Result<Job, PlaneError> {
        // A hold on another name would pass the clock check but protect the wrong document.
        hold.cover(&seen.lock_name()?)?;
        let to = change.job.state;
        let due_in = self.settings.due_in(&change.job, change.due_in);
        let write = WriteRequest {
            id: self.new_id(),
            revision: job_revision(&change.job, due_in, &self.event_json(hold, seen, &change)),
            expected_version: Some(seen.version),
            allowed_states: if change.keeps_state { vec![seen.state.as_str()] } else { to.predecessors() },
            quota: None,
            fence: None,
            new_documents: Vec::new(),
            messages: change.messages,
            only_due_time: change.only_due_time,
        };
        match self.commit_with_tries(hold, write, tries).await {
            Ok((version, _)) => {
                if !change.keeps_state {
                    self.emit(&PlaneEvent::StateChanged {
                        job: seen.id.clone(),
                        class: seen.spec.class.clone(),
                        to,
                    });
                }
                Ok(Job { version, ..change.job })
            }
            Err(error) => {
                self.count_refusal(hold, seen, to, &error);
                Err(error)
            }
        }
    }

    fn count_refusal(&self, hold: &Hold, seen: &Job, to: JobState, error: &PlaneError) {
        let PlaneError::Refused(refusal) = error else {
            return;
        };
        // The state that the store found distinguishes a second end of the job from a version conflict.
        let found = refusal.state().and_then(|state| state.parse::<JobState>().ok());
        if to.is_terminal() && found.is_some_and(JobState::is_terminal) {
            self.locks.report_duplicate(hold.class(), hold.name());
            self.emit(&PlaneEvent::DuplicateTerminal { job: seen.id.clone() });
        } else if matches!(to, JobState::Dispatched | JobState::Running) {
            self.emit(&PlaneEvent::RepeatedHandOver { job: seen.id.clone() });
        }
    }

    // Needs no hold: a job that does not exist has no owner, and the store refuses a second one by id
    // and by key.
    pub(crate) async fn create_job(
        &self,
        job: &Job,
        key: Option<DocumentKey>,
        quota: Option<OwnerQuota>,
        send: Vec<Message>,
    ) -> Result<WriteResponse, PlaneError> {
        // The store checks transitions only for existing documents, so the first state is checked here.
        debug_assert!(INITIAL_STATES.contains(&job.state));
        let event = json!({
            "to": job.state,
            "by": self.holder_name(),
            "principal": job.submitted_by,
            "why": "submitted",
        })
        .to_string();
        let write = WriteRequest {
            id: self.new_id(),
            revision: Revision { key, ..job_revision(job, self.settings.due_in(job, None), &event) },
            expected_version: None,
            allowed_states: Vec::new(),
            quota,
            fence: None,
            new_documents: Vec::new(),
            messages: send,
            only_due_time: false,
        };
        self.write_without_hold(&write).await
    }

    pub(crate) async fn write_without_hold(&self, write: &WriteRequest) -> Result<WriteResponse, PlaneError> {
        self.write_with_retries(write, MAX_WRITE_TRIES, || Ok(())).await
    }

    /// Commits one conditional write under a hold. Returns the new version and the ids of those further
    /// documents that existed already.
    pub(crate) async fn commit(
        &self,
        hold: &Hold,
        write: WriteRequest,
    ) -> Result<(u64, Vec<String>), PlaneError> {
        self.commit_with_tries(hold, write, MAX_WRITE_TRIES).await
    }

    async fn commit_with_tries(
        &self,
        hold: &Hold,
        mut write: WriteRequest,
        tries: u32,
    ) -> Result<(u64, Vec<String>), PlaneError> {
        let fence = hold.fence_if_any()?;
        write.fence = fence.map(|fence| (hold.name().clone(), fence));
        if fence.is_none() {
            self.emit(&PlaneEvent::UnfencedWrite { name: hold.name().to_string() });
        }
        // Checked before every try, not once: the hold can expire during a retry delay.
        let may = || hold.check().map_err(PlaneError::from);
        match self.write_with_retries(&write, tries, may).await? {
            WriteResponse::Applied { version, already_existing: skipped, .. } => Ok((version, skipped)),
            WriteResponse::Refused(refusal) => {
                if let WriteRefusal::StaleFence { offered, newest, .. } = &refusal {
                    self.locks.report_fence_refused(hold.class(), hold.name(), *offered, *newest);
                    self.emit(&PlaneEvent::StaleWrite { name: hold.name().to_string() });
                }
                Err(refusal.into())
            }
        }
    }

    async fn write_with_retries(
        &self,
        write: &WriteRequest,
        most: u32,
        may: impl Fn() -> Result<(), PlaneError>,
    ) -> Result<WriteResponse, PlaneError> {
        let (mut tries, mut pause) = (0, FIRST_RETRY_DELAY);
        loop {
            may()?;
            match self.call(self.store.write(write)).await {
                Ok(written) => {
                    if !write.messages.is_empty() {
                        // Also after a refusal: a needless wake-up costs one poll, a missed one delays the message.
                        self.message_sent.notify_waiters();
                    }
                    return Ok(written);
                }
                Err(failure) => {
                    tries += 1;
                    // An unknown outcome is safe to retry: the store recognises the write by its id.
                    if tries >= most || !(failure.unknown || failure.is_transient()) {
                        return Err(failure.into());
                    }
                    self.locks.clock().sleep(self.random.jitter(pause)).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    /// Acknowledges a message. Only the replica that did its work may, and only while its hold is valid.
    ///
    /// # Errors
    /// The hold is lost, and the message will be redelivered. Or the store did not respond.
    pub async fn ack(&self, hold: &Hold, delivery: &Delivery) -> Result<bool, PlaneError> {
        hold.check()?;
        Ok(self.call(self.store.settle(delivery, Disposition::Ack)).await?)
    }

    /// Returns a message to its queue after a jittered delay. No work was done for it, so no hold is needed.
    pub(crate) async fn redeliver(&self, delivery: &Delivery, after: Duration, why: &'static str) {
        self.emit(&PlaneEvent::Redelivered { why });
        let after = self.random.jitter(after);
        // An error is ignored: after the visibility timeout the store redelivers the message anyway.
        let _ = self.call(self.store.settle(delivery, Disposition::Redeliver(after))).await;
    }

    /// Sends a message on its own, under a hold. `false`: a message with this id is queued already.
    ///
    /// # Errors
    /// The hold is lost, or the store did not respond.
    pub async fn publish(&self, hold: &Hold, message: &Message) -> Result<bool, PlaneError> {
        hold.check()?;
        Ok(self.call(self.store.send(message)).await?)
    }

    fn event_json(&self, hold: &Hold, seen: &Job, change: &JobChange) -> String {
        let mut event = json!({
            "from": seen.state,
            "to": change.job.state,
            "by": self.holder_name(),
            "class": hold.class(),
            "fence": hold.fence_if_any().ok().flatten(),
            "local_only": hold.exclusivity() == Exclusivity::LocalOnly,
            "attempt": change.job.attempt,
            "why": change.reason,
        });
        if let Some(principal) = &change.principal {
            event["principal"] = json!(principal);
        }
        if change.self_approval {
            event["self_approval"] = json!(true);
        }
        event.to_string()
    }
}

/// The principal whose quota a job counts against. Jobs of steps count with their run.
fn owner_of(job: &Job) -> String {
    let requester = job.requester().filter(|requester| job.parent.is_none() && *requester != UNAUTHENTICATED);
    requester.unwrap_or_default().to_owned()
}

pub(crate) fn job_revision(job: &Job, due_in: Option<Duration>, event: &str) -> Revision {
    Revision {
        kind: DocumentKind::Job,
        id: job.id.clone(),
        state: job.state.as_str(),
        due_in,
        index_key: job.spec.topic.clone(),
        owner: owner_of(job),
        key: None,
        // Cannot fail: plain data with string keys always serialises.
        body: serde_json::to_string(job).unwrap_or_default(),
        event: event.to_owned(),
    }
}

pub(crate) fn run_lock_name(id: &str) -> Result<Name, PlaneError> {
    Ok(Name::new(&format!("run:{id}"))?)
}
