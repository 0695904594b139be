//! One turn of one job: from a delivery to its answer.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Hold, Lost};

use super::{Grip, Scheduler};
use crate::error::PlaneError;
use crate::job::{Job, Owner, Work, go};
use crate::ledger::Ledger;
use crate::note::Note;
use crate::state::JobState;
use crate::store::{Refusal, Settle, Taken};

/// Runs the work as long as the hold is good.
pub(crate) async fn guarded<T>(
    hold: &Hold,
    work: impl Future<Output = Result<T, PlaneError>>,
) -> Result<T, PlaneError> {
    match hold.run(work).await {
        Ok(out) => out,
        Err((lost, _)) => Err(lost.into()),
    }
}

impl Ledger {
    /// What a delivery is answered with when its work did not come to its end.
    pub(crate) async fn answer(&self, mail: &Taken, out: Result<(), PlaneError>) {
        let (busy, error) = (self.settings.busy_again, self.settings.error_again);
        match out {
            Ok(()) => {}
            // Silence: the mail comes again by itself, to whoever is the owner then.
            Err(PlaneError::Lost(Lost { name, .. })) => self.note(&Note::Abandoned {
                name: name.to_string(),
            }),
            Err(PlaneError::Refused(Refusal::Stale { .. })) => self.note(&Note::Abandoned {
                name: mail.to.clone(),
            }),
            Err(PlaneError::Busy { .. }) => self.again(mail, busy, "busy").await,
            Err(PlaneError::Refused(_)) => self.again(mail, busy, "conflict").await,
            Err(other) => {
                tracing::warn!(mail = %mail.id, error = %other, "will be delivered again");
                self.again(mail, error, "error").await;
            }
        }
    }

    /// Throws away mail about something that has ended or is gone: nothing is left that it could change.
    pub(crate) async fn discard(&self, mail: &Taken) -> Result<(), PlaneError> {
        self.call(self.store.settle(mail, Settle::Ack)).await?;
        Ok(())
    }
}

impl Scheduler {
    /// Answers one delivery, whatever it takes.
    pub async fn deliver(&self, mail: &Taken) {
        let out = self.turn(mail).await;
        self.ledger.answer(mail, out).await;
    }

    async fn turn(&self, mail: &Taken) -> Result<(), PlaneError> {
        let job = match self.ledger.job(&mail.to).await {
            Ok(job) if job.state.ended() => return self.ledger.discard(mail).await,
            Ok(job) => job,
            Err(PlaneError::NotFound { .. }) => return self.ledger.discard(mail).await,
            Err(error) => return Err(error),
        };
        let hold = self.ledger.lock(&job.spec.class, job.name()?, None).await?;
        let out = guarded(&hold, self.under(&hold, mail)).await;
        hold.release().await;
        out
    }

    /// The turn, under the job's lock. What was read before it was taken is forgotten.
    async fn under(&self, hold: &Hold, mail: &Taken) -> Result<(), PlaneError> {
        let job = self.ledger.job(&mail.to).await?;
        let read_at = self.ledger.locks.clock().now();
        if let Some(done) = self.settle_early(hold, &job).await? {
            if done {
                self.ledger.ack(hold, mail).await?;
            }
            return Ok(());
        }
        // What was sent for an earlier attempt, or twice, must not cut the pause before the next one short: its own mail comes
        // when that is over.
        if job.state == JobState::Retrying
            && mail.id != go(&job, Duration::ZERO).id
            && job.due.is_some_and(|due| due > job.now)
        {
            self.ledger.ack(hold, mail).await?;
            return Ok(());
        }
        let Some(grip) = Grip::take(&self.ledger, &job).await? else {
            self.ledger
                .again(mail, self.ledger.settings.busy_again, "resource")
                .await;
            return Ok(());
        };
        let out = self.dispatch(hold, &grip, job, read_at, mail).await;
        grip.give_back().await;
        out
    }

    /// What needs no dispatching. `None`: it does; otherwise whether the mail is done with.
    async fn settle_early(&self, hold: &Hold, job: &Job) -> Result<Option<bool>, PlaneError> {
        if job.state.ended() {
            return Ok(Some(true));
        }
        if let Some(why) = self.ledger.wished_off(&job.id).await? {
            self.ledger.apply(hold, job, job.cancel(&why)).await?;
            return Ok(Some(true));
        }
        if job.late() {
            let change = job.time_out("its deadline has passed");
            self.ledger.apply(hold, job, change).await?;
            return Ok(Some(true));
        }
        if job.state == JobState::ApprovalRequired {
            return Ok(Some(true));
        }
        if matches!(job.state, JobState::Dispatched | JobState::Running) {
            if job.spec.work.local() {
                self.take_over(hold, job, None).await?;
            }
            return Ok(Some(true));
        }
        Ok(None)
    }

    /// We hold the lock of a job that somebody works on: that somebody is gone.
    /// `took`: since its lease ran out, if that was seen.
    pub(crate) async fn take_over(
        &self,
        hold: &Hold,
        job: &Job,
        took: Option<Duration>,
    ) -> Result<Job, PlaneError> {
        let gone = job.owner.as_ref().map_or("nobody", |owner| &owner.who);
        let change = job.lose(&format!("its owner {gone} is gone"));
        let moved = self.ledger.apply(hold, job, change).await?;
        self.ledger.note(&Note::Takeover {
            what: "job",
            name: job.id.clone(),
            took,
        });
        Ok(moved)
    }

    async fn dispatch(
        &self,
        hold: &Hold,
        grip: &Grip,
        job: Job,
        read_at: Moment,
        mail: &Taken,
    ) -> Result<(), PlaneError> {
        let ledger = &self.ledger;
        // By the store's clock until it was read, by ours since: the two are never compared.
        let waited = (job.state == JobState::Pending)
            .then(|| Duration::from_millis(job.now.saturating_sub(job.updated)));
        let job = match job.state {
            JobState::Scheduled => job,
            _ => ledger.apply(hold, &job, job.schedule()).await?,
        };
        let owner = Owner {
            who: ledger.me(),
            fence: hold.unfenced()?,
        };
        // Before the hand-over it permits: whoever finds DISPATCHED must reckon with the hand-over having happened.
        let job = ledger.apply(hold, &job, job.dispatch(owner.clone())).await?;
        if let Err(why) = self.hand_over(hold, &job).await? {
            ledger.apply(hold, &job, job.roll_back(&why)).await?;
            ledger.note(&Note::RolledBack { job: job.id });
            ledger.again(mail, ledger.settings.error_again, "error").await;
            return Ok(());
        }
        if let Some(waited) = waited {
            ledger.note(&Note::HandedOver {
                class: job.spec.class.clone(),
                waited: waited + ledger.locks.clock().now().since(read_at),
            });
        }
        match job.spec.work {
            Work::Pull => {}
            Work::Gate => {
                ledger
                    .apply(hold, &job, job.succeed(serde_json::Value::Null))
                    .await?;
            }
            Work::Exec(_) | Work::Handler => {
                let job = ledger.apply(hold, &job, job.start(owner, None)).await?;
                // From here on the document says what is to be done, not the mail.
                ledger.ack(hold, mail).await?;
                return self.attempt(hold, grip, &job).await;
            }
        }
        ledger.ack(hold, mail).await?;
        Ok(())
    }

    /// Hands the job over to those who do its work: the one publication of the scheduler, and only by its owner.
    async fn hand_over(&self, hold: &Hold, job: &Job) -> Result<Result<(), String>, PlaneError> {
        hold.check()?;
        Ok(match &job.spec.work {
            Work::Pull => self.works.publisher.publish(hold, job).await,
            Work::Gate => Ok(()),
            Work::Exec(_) if self.works.exec.is_some() => Ok(()),
            Work::Exec(_) => Err("this replica runs no commands".to_owned()),
            Work::Handler if self.works.handlers.contains_key(&job.spec.topic) => Ok(()),
            Work::Handler => Err(format!("no handler serves the topic {} here", job.spec.topic)),
        })
    }
}
