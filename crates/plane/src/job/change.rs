//! Every step of a job's life, as a pure function from the job as it was seen to what is to be written.

use std::time::Duration;

use leasehold_core::rng::{Random, RandomExt};
use serde_json::{Value, json};

use super::{Dead, Decision, Job, Outcome, Owner, Work};
use crate::state::JobState;
use crate::store::{Mail, Queue};

/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long after its time a waiting job is left to its mail.
const GRACE: Duration = Duration::from_secs(30);
/// A job that has cost this many owners is not given to another one.
const LOSSES: u32 = 10;

/// What is to be written.
#[derive(Debug, Clone)]
pub struct Change {
    /// The job afterwards, its new state included.
    pub job: Job,
    /// The state does not change: only what is known about the job.
    pub stays: bool,
    /// When somebody should look at it; if not given, as its state's time-out says.
    pub due_in: Option<Duration>,
    /// What is sent in the same step.
    pub send: Vec<Mail>,
    /// Why, for the event.
    pub why: String,
}

impl Change {
    fn to(job: &Job, state: JobState, why: impl Into<String>) -> Self {
        let mut job = job.clone();
        job.state = state;
        let mut send = Vec::new();
        if state.ended() {
            job.owner = None;
            send.extend(result_of(&job));
        }
        Self {
            job,
            stays: false,
            due_in: None,
            send,
            why: why.into(),
        }
    }
}

/// The mail that lets a scheduler take a job up: one for each time that it waits to be.
pub(crate) fn go(job: &Job, due_in: Duration) -> Mail {
    let id = match job.state {
        // The mail that brought the last attempt may still be there under the attempt's number.
        JobState::Retrying => format!("go:{}:{}:{}", job.id, job.attempt, job.version),
        _ => format!("go:{}:{}", job.id, job.attempt),
    };
    Mail {
        queue: Queue::Jobs,
        id,
        to: job.id.clone(),
        body: json!({"verb": "go"}).to_string(),
        due_in,
    }
}

/// The mail that lets a scheduler look at a job that is called off.
pub(crate) fn off(job: &str) -> Mail {
    Mail {
        queue: Queue::Jobs,
        id: format!("off:{job}"),
        to: job.to_owned(),
        body: json!({"verb": "go"}).to_string(),
        due_in: Duration::ZERO,
    }
}

/// The mail that tells a run how the job of one of its steps has ended: sent by the very step that ends it.
fn result_of(job: &Job) -> Option<Mail> {
    let parent = job.parent.as_ref()?;
    Some(Mail {
        queue: Queue::Runs,
        id: format!("result:{}", job.id),
        to: parent.run.clone(),
        body: json!({"verb": "result", "step": parent.step, "attempt": parent.attempt, "job": job.id})
            .to_string(),
        due_in: Duration::ZERO,
    })
}

impl Job {
    /// A scheduler takes it up.
    #[must_use]
    pub fn schedule(&self) -> Change {
        Change::to(self, JobState::Scheduled, "taken up")
    }

    /// It may be handed over. Written before the hand-over, with the number of the attempt.
    #[must_use]
    pub fn dispatch(&self, owner: Owner) -> Change {
        let mut change = Change::to(self, JobState::Dispatched, "about to be handed over");
        change.job.attempt += 1;
        change.job.owner = (self.spec.work != Work::Pull).then_some(owner);
        change
    }

    /// The hand-over failed: as if it had not been dispatched.
    #[must_use]
    pub fn roll_back(&self, why: &str) -> Change {
        let mut change = Change::to(self, JobState::Scheduled, format!("the hand-over failed: {why}"));
        change.job.owner = None;
        change
    }

    /// Its work begins.
    #[must_use]
    pub fn start(&self, owner: Owner, due_in: Option<Duration>) -> Change {
        let mut change = Change::to(self, JobState::Running, format!("{} works on it", owner.who));
        change.job.owner = Some(owner);
        change.due_in = due_in;
        change
    }

    /// Its worker is alive.
    #[must_use]
    pub fn heartbeat(&self, due_in: Duration) -> Change {
        let mut change = Change::to(self, self.state, "heartbeat");
        change.stays = true;
        change.due_in = Some(due_in);
        change
    }

    /// Its work is done.
    #[must_use]
    pub fn succeed(&self, value: Value) -> Change {
        let mut change = Change::to(self, JobState::Succeeded, "done");
        change.job.outcome = Some(Outcome::Done(value));
        change
    }

    /// An attempt failed: another one, later, or the dead letters.
    #[must_use]
    pub fn fail(&self, why: &str, random: &dyn Random) -> Change {
        let failures = self.failures + 1;
        let mut change = if failures >= self.spec.attempts {
            self.bury(JobState::Failed, why)
        } else {
            let doublings = failures.saturating_sub(1).min(16);
            let pause = self.spec.backoff.0.saturating_mul(1 << doublings).min(LONGEST);
            self.again(random.jitter(pause), why)
        };
        change.job.failures = failures;
        change.job.outcome = Some(Outcome::Failed(why.to_owned()));
        change
    }

    /// Its owner is gone. That is not the job's fault, so it costs no attempt; but a job that takes its owners down with
    /// it is put away before it has taken all of them.
    #[must_use]
    pub fn lose(&self, why: &str) -> Change {
        let losses = self.losses + 1;
        let mut change = if losses >= LOSSES && self.state.can_become(JobState::Quarantined) {
            self.bury(
                JobState::Quarantined,
                &format!("lost with its owner {losses} times; last: {why}"),
            )
        } else {
            self.again(Duration::ZERO, why)
        };
        change.job.losses = losses;
        change
    }

    fn again(&self, pause: Duration, why: &str) -> Change {
        let mut change = Change::to(self, JobState::Retrying, why);
        change.job.owner = None;
        // If even its mail is gone by then, the replayer submits it again.
        change.due_in = Some(pause + GRACE);
        // Known by the version that this change makes.
        change.job.version = self.version + 1;
        change.send.push(go(&change.job, pause));
        change
    }

    /// Its time is over.
    #[must_use]
    pub fn time_out(&self, why: &str) -> Change {
        self.bury(JobState::Timeout, why)
    }

    /// Someone calls it off.
    #[must_use]
    pub fn cancel(&self, why: &str) -> Change {
        Change::to(self, JobState::Cancelled, why)
    }

    /// A person says yes.
    #[must_use]
    pub fn approve(&self, by: &str, reason: &str) -> Change {
        let mut change = Change::to(self, JobState::Pending, format!("approved by {by}: {reason}"));
        change.job.decision = Some(Decision {
            approved: true,
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
        let mail = go(&change.job, Duration::ZERO);
        change.send.push(mail);
        change
    }

    /// A person says no.
    #[must_use]
    pub fn reject(&self, by: &str, reason: &str) -> Change {
        let mut change = Change::to(self, JobState::Denied, format!("rejected by {by}: {reason}"));
        change.job.decision = Some(Decision {
            approved: false,
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
        change
    }

    /// A person mends what is to be run, before it is approved.
    #[must_use]
    pub fn repair(&self, payload: Value, by: &str, reason: &str) -> Change {
        let mut change = Change::to(self, self.state, format!("repaired by {by}: {reason}"));
        change.stays = true;
        change.job.spec.payload = payload;
        change
    }

    /// Given up, with a dead letter.
    fn bury(&self, state: JobState, reason: &str) -> Change {
        let mut change = Change::to(self, state, reason);
        change.job.dead = Some(Dead {
            reason: reason.to_owned(),
            last_state: self.state,
            attempts: self.attempt,
        });
        change
    }
}
