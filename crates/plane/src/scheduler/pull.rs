//! Workers that ask for work: claim, heartbeat, result, each with the number and the fence of the claim.
//!
//! Between its calls a worker holds no lock. What makes it the owner is the claim in the job's document; each call takes
//! the job's lock for the one write it makes. A worker that falls silent loses the claim, and whatever it says later
//! carries an attempt or a fence that is not the claim's any more.

use std::time::Duration;

use leasehold_core::{Fence, Hold};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Scheduler;
use super::turn::guarded;
use crate::error::PlaneError;
use crate::job::{Job, Owner, Work};
use crate::ledger::Ledger;
use crate::note::Note;
use crate::state::JobState;
use crate::store::{Kind, Query};

/// How many jobs are looked at for one claim: others may be faster with the first.
const CANDIDATES: usize = 16;

/// What a worker shows with each call: that it means its own claim, not a later one's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The job.
    pub job: String,
    /// Which attempt at it.
    pub attempt: u32,
    /// The fence it was claimed under. Send it with whatever the work writes elsewhere.
    pub fence: Option<Fence>,
}

/// A job that a worker has claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// What to show with each further call.
    pub claim: Claim,
    /// The job.
    pub job: Job,
    /// A heartbeat or a result must come within this time.
    pub heartbeat: Duration,
}

/// What came of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    /// The job afterwards.
    pub job: Job,
    /// It had ended already; nothing was changed.
    pub repeated: bool,
}

impl Scheduler {
    /// Claims a job of a topic for a worker, if there is one.
    ///
    /// # Errors
    /// A store did not answer.
    pub async fn claim(&self, topic: &str, worker: &str) -> Result<Option<Claimed>, PlaneError> {
        let query = Query {
            kind: Kind::Job,
            states: vec![JobState::Dispatched.word()],
            due: false,
            shelf: Some(topic.to_owned()),
            limit: CANDIDATES,
        };
        for doc in self.ledger.call(self.ledger.store.list(&query)).await? {
            let job = Job::read(&doc)?;
            if job.spec.work != Work::Pull {
                continue;
            }
            let hold = match self
                .ledger
                .lock(&job.spec.class, job.name()?, Some(Duration::ZERO))
                .await
            {
                Ok(hold) => hold,
                // Another worker has it, or soon will.
                Err(PlaneError::Busy { .. }) => continue,
                Err(error) => return Err(error),
            };
            let claimed = guarded(&hold, self.claim_under(&hold, &job.id, worker)).await;
            hold.release().await;
            match claimed {
                Ok(Some(claimed)) => return Ok(Some(claimed)),
                Ok(None) | Err(PlaneError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn claim_under(&self, hold: &Hold, id: &str, worker: &str) -> Result<Option<Claimed>, PlaneError> {
        let ledger = &self.ledger;
        let job = ledger.job(id).await?;
        if job.state != JobState::Dispatched {
            return Ok(None);
        }
        if let Some(why) = ledger.wished_off(id).await? {
            ledger.apply(hold, &job, job.cancel(&why)).await?;
            return Ok(None);
        }
        let fence = hold.unfenced()?;
        let owner = Owner {
            who: worker.to_owned(),
            fence,
        };
        let heartbeat = ledger.settings.heartbeat;
        let job = ledger
            .apply(hold, &job, job.start(owner, Some(heartbeat)))
            .await?;
        let claim = Claim {
            job: job.id.clone(),
            attempt: job.attempt,
            fence,
        };
        Ok(Some(Claimed {
            claim,
            job,
            heartbeat,
        }))
    }

    /// The worker is alive and goes on.
    ///
    /// # Errors
    /// `stale_claim`: the job is not the worker's any more, and it should stop. Or a store did not answer.
    pub async fn heartbeat(&self, claim: &Claim) -> Result<Duration, PlaneError> {
        let ledger = &self.ledger;
        let hold = ledger.lock_job(&claim.job).await?;
        let beat = async {
            let job = ledger.job(&claim.job).await?;
            claim.check(&job)?;
            let heartbeat = ledger.settings.heartbeat;
            ledger.apply(&hold, &job, job.heartbeat(heartbeat)).await?;
            Ok(heartbeat)
        };
        let out = guarded(&hold, beat).await;
        hold.release().await;
        out
    }

    /// How the work ended. Said twice, it counts once.
    ///
    /// # Errors
    /// `stale_claim`: the job is not the worker's any more. Or a store did not answer: say it again.
    pub async fn report(&self, claim: &Claim, result: Result<Value, String>) -> Result<Reported, PlaneError> {
        let ledger = &self.ledger;
        let hold = ledger.lock_job(&claim.job).await?;
        let report = async {
            let job = ledger.job(&claim.job).await?;
            if job.state.ended() && job.attempt == claim.attempt {
                ledger.locks.duplicate(hold.class(), hold.name());
                ledger.note(&Note::DuplicateTerminal { job: job.id.clone() });
                return Ok(Reported { job, repeated: true });
            }
            claim.check(&job)?;
            let change = match result {
                Ok(value) => job.succeed(value),
                Err(why) => job.fail(&why, &*ledger.random),
            };
            let job = ledger.apply(&hold, &job, change).await?;
            Ok(Reported { job, repeated: false })
        };
        let out = guarded(&hold, report).await;
        hold.release().await;
        out
    }
}

impl Claim {
    fn check(&self, job: &Job) -> Result<(), PlaneError> {
        let owner = job.owner.as_ref();
        let ours = job.state == JobState::Running
            && job.attempt == self.attempt
            && owner.is_some_and(|owner| owner.fence == self.fence);
        if ours {
            return Ok(());
        }
        Err(PlaneError::Conflict {
            code: "stale_claim",
            what: format!(
                "attempt {} at job {} is over: it is {} now, in attempt {}; stop working on it",
                self.attempt, self.job, job.state, job.attempt
            ),
        })
    }
}

impl Ledger {
    /// The lock of a job, under the job's own class.
    pub(crate) async fn lock_job(&self, id: &str) -> Result<Hold, PlaneError> {
        let job = self.job(id).await?;
        self.lock(&job.spec.class, job.name()?, None).await
    }
}
