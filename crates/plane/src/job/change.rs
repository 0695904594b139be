//! Each step of a job's life, as a pure function from the job as read to the change to be written.

use std::time::Duration;

use leasehold_core::rng::{Random, RandomExt};
use serde_json::{Value, json};

use super::{ClaimSeal, DeadLetter, Decision, Job, Outcome, Owner, Work};
use crate::state::JobState;
use crate::store::{Message, Queue};

const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(3600);
/// How long after its retry time a job is left to its message before the replayer sends another.
const RETRY_MESSAGE_GRACE: Duration = Duration::from_secs(30);
/// A job that has been lost with this many owners is quarantined.
const MAX_OWNER_LOSSES: u32 = 10;

/// A change of one job, to be written in one step.
#[derive(Debug, Clone)]
pub struct JobChange {
    /// The job after the change, including its new state.
    pub job: Job,
    /// The state stays the same, so the transition table does not apply.
    pub keeps_state: bool,
    /// Only the due time changes: no new version and no event.
    pub only_due_time: bool,
    /// The job's next due time; `None` for the time-out of its state.
    pub due_in: Option<Duration>,
    /// Messages that are sent in the same step.
    pub messages: Vec<Message>,
    /// The reason, recorded in the event.
    pub reason: String,
    /// The principal on whose request the change is made, recorded in the event; none for a replica's own.
    pub principal: Option<String>,
    /// The decision is made by the principal that submitted the job; recorded in the event.
    pub self_approval: bool,
}

impl JobChange {
    pub(crate) fn requested_by(mut self, principal: Option<String>) -> Self {
        self.principal = principal;
        self
    }

    fn with_state(job: &Job, state: JobState, why: impl Into<String>) -> Self {
        let mut job = job.clone();
        job.state = state;
        let mut send = Vec::new();
        if state.is_terminal() {
            // The result message goes with the very write that ends the job, so it cannot be lost (ADR 0010).
            job.owner = None;
            send.extend(result_message(&job));
        }
        Self {
            job,
            keeps_state: false,
            only_due_time: false,
            due_in: None,
            messages: send,
            reason: why.into(),
            principal: None,
            self_approval: false,
        }
    }
}

/// The message that makes a scheduler handle a job: one per attempt.
pub(crate) fn dispatch_message(job: &Job, due_in: Duration) -> Message {
    let id = match job.state {
        // The previous attempt's message may still be queued under this attempt number, and a
        // second message of the same id would be dropped. The version makes the id unique.
        JobState::Retrying => format!("go:{}:{}:{}", job.id, job.attempt, job.version),
        _ => format!("go:{}:{}", job.id, job.attempt),
    };
    Message {
        queue: Queue::Jobs,
        id,
        document_id: job.id.clone(),
        body: json!({"verb": "go"}).to_string(),
        due_in,
    }
}

/// The message that makes a scheduler handle a cancel request now.
pub(crate) fn cancel_message(job: &str) -> Message {
    Message {
        queue: Queue::Jobs,
        id: format!("off:{job}"),
        document_id: job.to_owned(),
        body: json!({"verb": "go"}).to_string(),
        due_in: Duration::ZERO,
    }
}

/// The message that reports the end of a step's job to its run.
fn result_message(job: &Job) -> Option<Message> {
    let parent = job.parent.as_ref()?;
    Some(Message {
        queue: Queue::Runs,
        id: format!("result:{}", job.id),
        document_id: parent.run.clone(),
        body: json!({"verb": "result", "step": parent.step, "attempt": parent.attempt, "job": job.id})
            .to_string(),
        due_in: Duration::ZERO,
    })
}

impl Job {
    /// A scheduler has taken the job.
    #[must_use]
    pub fn schedule(&self) -> JobChange {
        JobChange::with_state(self, JobState::Scheduled, "taken up")
    }

    /// The job is about to be handed over. Written before the hand-over, with the attempt's number.
    #[must_use]
    pub fn dispatch(&self, owner: Owner) -> JobChange {
        let mut change = JobChange::with_state(self, JobState::Dispatched, "about to be handed over");
        change.job.attempt += 1;
        change.job.claim = None;
        // A pull job has no owner until a worker claims it.
        change.job.owner = (self.spec.work != Work::Pull).then_some(owner);
        change
    }

    /// The hand-over failed; the job returns to SCHEDULED.
    #[must_use]
    pub fn roll_back(&self, why: &str) -> JobChange {
        let mut change =
            JobChange::with_state(self, JobState::Scheduled, format!("the hand-over failed: {why}"));
        change.job.owner = None;
        change
    }

    /// The owner starts working.
    #[must_use]
    pub fn start(&self, owner: Owner, due_in: Option<Duration>) -> JobChange {
        let mut change = JobChange::with_state(self, JobState::Running, format!("{} works on it", owner.who));
        change.job.owner = Some(owner);
        change.due_in = due_in;
        change
    }

    /// A pull worker has claimed the job and starts working. Its first heartbeat is due in `due_in`.
    #[must_use]
    pub fn start_claimed(&self, owner: Owner, seal: ClaimSeal, due_in: Duration) -> JobChange {
        let mut change = self.start(owner, Some(due_in));
        change.principal = Some(seal.principal.clone());
        change.job.claim = Some(seal);
        change
    }

    /// A worker's heartbeat: only the due time changes, so that the history does not grow with the time that
    /// the work takes.
    #[must_use]
    pub fn heartbeat(&self, due_in: Duration) -> JobChange {
        let mut change = JobChange::with_state(self, self.state, "heartbeat");
        change.keeps_state = true;
        change.only_due_time = true;
        change.due_in = Some(due_in);
        change
    }

    /// The work is done, with this result.
    #[must_use]
    pub fn succeed(&self, value: Value) -> JobChange {
        let mut change = JobChange::with_state(self, JobState::Succeeded, "done");
        change.job.outcome = Some(Outcome::Done(value));
        change
    }

    /// An attempt failed. The job is retried after a backoff, or given up after its last attempt.
    #[must_use]
    pub fn fail(&self, why: &str, random: &dyn Random) -> JobChange {
        let failures = self.failures + 1;
        let mut change = if failures >= self.spec.attempts {
            self.give_up(JobState::Failed, why)
        } else {
            // At most 16 doublings, so the shift cannot overflow; the backoff limit applies long before.
            let doublings = failures.saturating_sub(1).min(16);
            let pause = self.spec.backoff.0.saturating_mul(1 << doublings).min(MAX_RETRY_BACKOFF);
            self.retry(random.jitter(pause), why)
        };
        change.job.failures = failures;
        change.job.outcome = Some(Outcome::Failed(why.to_owned()));
        change
    }

    /// The owner is gone. This costs the job no attempt, because the job is not to blame. But a job that
    /// repeatedly crashes its owners is quarantined before it takes down every replica.
    #[must_use]
    pub fn owner_lost(&self, why: &str) -> JobChange {
        let losses = self.losses + 1;
        let mut change = if losses >= MAX_OWNER_LOSSES && self.state.can_become(JobState::Quarantined) {
            self.give_up(JobState::Quarantined, &format!("lost with its owner {losses} times; last: {why}"))
        } else {
            self.retry(Duration::ZERO, why)
        };
        change.job.losses = losses;
        change
    }

    fn retry(&self, pause: Duration, why: &str) -> JobChange {
        let mut change = JobChange::with_state(self, JobState::Retrying, why);
        change.job.owner = None;
        // If the message is lost, the replayer sends it again after this time.
        change.due_in = Some(pause + RETRY_MESSAGE_GRACE);
        // The message id contains the version that this write creates.
        change.job.version = self.version + 1;
        change.messages.push(dispatch_message(&change.job, pause));
        change
    }

    /// A time-out or the deadline has passed.
    #[must_use]
    pub fn time_out(&self, why: &str) -> JobChange {
        self.give_up(JobState::Timeout, why)
    }

    /// The job is cancelled.
    #[must_use]
    pub fn cancel(&self, why: &str) -> JobChange {
        JobChange::with_state(self, JobState::Cancelled, why)
    }

    /// A person approved the job: it becomes PENDING.
    #[must_use]
    pub fn approve(&self, by: &str, reason: &str) -> JobChange {
        let mut change =
            JobChange::with_state(self, JobState::Pending, format!("approved by {by}: {reason}"));
        change.job.decision = Some(Decision { approved: true, by: by.to_owned(), reason: reason.to_owned() });
        let message = dispatch_message(&change.job, Duration::ZERO);
        change.messages.push(message);
        change
    }

    /// A person rejected the job: it becomes DENIED.
    #[must_use]
    pub fn reject(&self, by: &str, reason: &str) -> JobChange {
        let mut change = JobChange::with_state(self, JobState::Denied, format!("rejected by {by}: {reason}"));
        change.job.decision =
            Some(Decision { approved: false, by: by.to_owned(), reason: reason.to_owned() });
        change
    }

    /// A person replaced the payload before the approval.
    #[must_use]
    pub fn repair(&self, payload: Value, by: &str, reason: &str) -> JobChange {
        let mut change = JobChange::with_state(self, self.state, format!("repaired by {by}: {reason}"));
        change.keeps_state = true;
        change.job.spec.payload = payload;
        change
    }

    fn give_up(&self, state: JobState, reason: &str) -> JobChange {
        let mut change = JobChange::with_state(self, state, reason);
        change.job.dead =
            Some(DeadLetter { reason: reason.to_owned(), last_state: self.state, attempts: self.attempt });
        change
    }
}
