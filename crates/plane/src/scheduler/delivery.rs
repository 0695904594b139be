//! One delivery about one job: from the received message to its settlement.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Hold, LeaseLost, RequestOptions};
use leasehold_supervise::effective_grace;

use super::attempt::Attempt;
use super::{ResourceHolds, Scheduler};
use crate::error::PlaneError;
use crate::events::PlaneEvent;
use crate::fenced_writer::FencedWriter;
use crate::job::{Job, Owner, Work, dispatch_message};
use crate::state::JobState;
use crate::store::{Delivery, Disposition, WriteRefusal};

/// Runs a future for as long as the hold is valid, and drops it when the hold is lost.
pub(crate) async fn while_held<T>(
    hold: &Hold,
    work: impl Future<Output = Result<T, PlaneError>>,
) -> Result<T, PlaneError> {
    match hold.run(work).await {
        Ok(out) => out,
        Err((lost, _)) => Err(lost.into()),
    }
}

impl FencedWriter {
    /// Settles a delivery whose handling failed; a success has been acknowledged before.
    pub(crate) async fn settle_delivery(&self, delivery: &Delivery, out: Result<(), PlaneError>) {
        let (busy, error) = (self.settings.busy_redelivery_delay, self.settings.error_redelivery_delay);
        match out {
            Ok(()) => {}
            // No settlement without a valid hold. The store redelivers the message after its visibility
            // timeout, and the new owner receives it.
            Err(PlaneError::Lost(LeaseLost { name, .. })) => {
                self.emit(&PlaneEvent::WorkAbandoned { name: name.to_string() })
            }
            Err(PlaneError::Refused(WriteRefusal::StaleFence { .. })) => {
                self.emit(&PlaneEvent::WorkAbandoned { name: delivery.document_id.clone() })
            }
            Err(PlaneError::Busy { .. }) => self.redeliver(delivery, busy, "busy").await,
            Err(PlaneError::Refused(_)) => self.redeliver(delivery, busy, "conflict").await,
            Err(other) => {
                tracing::warn!(message = %delivery.id, error = %other, "will be delivered again");
                self.redeliver(delivery, error, "error").await;
            }
        }
    }

    /// Acknowledges a message whose document has ended or does not exist: there is nothing left to do, so
    /// no hold is needed.
    pub(crate) async fn discard(&self, delivery: &Delivery) -> Result<(), PlaneError> {
        self.call(self.store.settle(delivery, Disposition::Ack)).await?;
        Ok(())
    }
}

impl Scheduler {
    /// Handles one delivery and settles it.
    pub async fn handle_delivery(&self, delivery: &Delivery) {
        let out = self.process(delivery).await;
        self.writer.settle_delivery(delivery, out).await;
    }

    async fn process(&self, delivery: &Delivery) -> Result<(), PlaneError> {
        let job = match self.writer.job(&delivery.document_id).await {
            Ok(job) if job.state.is_terminal() => return self.writer.discard(delivery).await,
            Ok(job) => job,
            Err(PlaneError::NotFound { .. }) => return self.writer.discard(delivery).await,
            Err(error) => return Err(error),
        };
        // The job was read first only for its class and its kind of work, and to drop messages about ended
        // jobs without a lock.
        let stop_grace = self.command_grace(&job)?;
        let mut locks = self.writer.locks.class(&job.spec.class);
        if let Some(grace) = stop_grace {
            locks = locks.stop_grace(grace);
        }
        let hold = self.writer.acquire(&locks, job.lock_name()?).await?;
        let out = match while_held(&hold, self.process_locked(&hold, stop_grace, delivery)).await {
            // Not under `while_held`: a command needs time to stop after the loss.
            Ok(Some(attempt)) => self.run_attempt(&hold, attempt).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        hold.release().await;
        out
    }

    /// The time that a job's command gets between TERM and KILL, as part of its locks' leases. `None`: the
    /// work is not a command.
    fn command_grace(&self, job: &Job) -> Result<Option<Duration>, PlaneError> {
        let Work::Exec(_) = job.spec.work else {
            return Ok(None);
        };
        let (locks, setting) = (&self.writer.locks, self.writer.settings.stop_grace);
        let class = locks.policies().class(&job.spec.class, locks.clock().now())?;
        let requested = Some(setting).filter(|grace| !grace.is_zero());
        let mut options = RequestOptions::default();
        options.stop_grace = Some(effective_grace(requested, None, &class));
        match options.apply(&class) {
            Ok(class) => Ok(Some(class.stop_grace)),
            // A job of a class with very short leases still runs; its commands are killed at once.
            Err(problem) => {
                tracing::warn!(job = %job.id, %problem, "the class's own stop_grace is used");
                Ok(Some(class.stop_grace))
            }
        }
    }

    /// Settles the delivery, or prepares an attempt at the job's work.
    async fn process_locked(
        &self,
        hold: &Hold,
        stop_grace: Option<Duration>,
        delivery: &Delivery,
    ) -> Result<Option<Attempt>, PlaneError> {
        // Read again: the job may have changed before the lock was acquired.
        let job = self.writer.job(&delivery.document_id).await?;
        let read_at = self.writer.locks.clock().now();
        if let Some(done) = self.settle_without_dispatch(hold, &job).await? {
            if done {
                self.writer.ack(hold, delivery).await?;
            }
            return Ok(None);
        }
        // A duplicate or an earlier attempt's message must not cut the backoff short. The retry's own
        // message arrives when the backoff is over.
        if job.state == JobState::Retrying
            && delivery.id != dispatch_message(&job, Duration::ZERO).id
            && job.due.is_some_and(|due| due > job.now)
        {
            self.writer.ack(hold, delivery).await?;
            return Ok(None);
        }
        let Some(resources) = ResourceHolds::acquire_all(&self.writer, &job, stop_grace).await? else {
            self.writer.redeliver(delivery, self.writer.settings.busy_redelivery_delay, "resource").await;
            return Ok(None);
        };
        match self.dispatch(hold, job, read_at, delivery).await {
            Ok(Some(job)) => Ok(Some(Attempt { job, resources, stop_grace: stop_grace.unwrap_or_default() })),
            ended => {
                resources.release_all().await;
                ended.map(|_| None)
            }
        }
    }

    /// Handles jobs that need no dispatch. `None`: the job must be dispatched. `Some(true)`: acknowledge
    /// the message.
    async fn settle_without_dispatch(&self, hold: &Hold, job: &Job) -> Result<Option<bool>, PlaneError> {
        if job.state.is_terminal() {
            return Ok(Some(true));
        }
        if let Some(request) = self.writer.open_cancel_request(&job.id).await? {
            self.writer.apply(hold, job, request.change(job)).await?;
            return Ok(Some(true));
        }
        if job.is_past_deadline() {
            let change = job.time_out("its deadline has passed");
            self.writer.apply(hold, job, change).await?;
            return Ok(Some(true));
        }
        // The approval sends a new message, so this one is done.
        if job.state == JobState::ApprovalRequired {
            return Ok(Some(true));
        }
        if matches!(job.state, JobState::Dispatched | JobState::Running) {
            // The lock was free, so the replica that worked on it is gone (ADR 0011). A pull worker holds no
            // lock, so for its jobs a free lock means nothing.
            if job.spec.work.runs_on_replica() {
                self.take_over(hold, job, None).await?;
            }
            return Ok(Some(true));
        }
        Ok(None)
    }

    /// Takes a job over whose owner is gone; the caller holds the job's lock, which proves that.
    /// `took`: time since the old lease ran out, if it was observed.
    pub(crate) async fn take_over(
        &self,
        hold: &Hold,
        job: &Job,
        took: Option<Duration>,
    ) -> Result<Job, PlaneError> {
        let gone = job.owner.as_ref().map_or("(unknown)", |owner| &owner.who);
        let change = job.owner_lost(&format!("its owner {gone} is gone"));
        let moved = self.writer.apply(hold, job, change).await?;
        self.writer.emit(&PlaneEvent::Takeover { what: "job", name: job.id.clone(), took });
        Ok(moved)
    }

    /// Hands the job over. Returns the job if its work is to be done here.
    async fn dispatch(
        &self,
        hold: &Hold,
        job: Job,
        read_at: Moment,
        delivery: &Delivery,
    ) -> Result<Option<Job>, PlaneError> {
        let writer = &self.writer;
        // The wait is a sum of two spans: until the read by the store's clock, since then by the local
        // one. The two clocks are never compared (ADR 0012).
        let waited = (job.state == JobState::Pending)
            .then(|| Duration::from_millis(job.now.saturating_sub(job.updated)));
        let job = match job.state {
            // Rolled back or abandoned after SCHEDULED: that step is done and the table allows no repetition.
            JobState::Scheduled => job,
            _ => writer.apply(hold, &job, job.schedule()).await?,
        };
        let owner = Owner { who: writer.holder_name(), fence: hold.fence_if_any()? };
        // DISPATCHED is written before the hand-over. A crash in between then looks like a hand-over that
        // happened, never like one that did not.
        let job = writer.apply(hold, &job, job.dispatch(owner.clone())).await?;
        if let Err(why) = self.hand_over(hold, &job).await? {
            writer.apply(hold, &job, job.roll_back(&why)).await?;
            writer.emit(&PlaneEvent::RolledBack { job: job.id });
            writer.redeliver(delivery, writer.settings.error_redelivery_delay, "error").await;
            return Ok(None);
        }
        if let Some(waited) = waited {
            writer.emit(&PlaneEvent::HandedOver {
                class: job.spec.class.clone(),
                waited: waited + writer.locks.clock().now().since(read_at),
            });
        }
        match job.spec.work {
            Work::Pull => {}
            Work::Gate => {
                writer.apply(hold, &job, job.succeed(serde_json::Value::Null)).await?;
            }
            Work::Exec(_) | Work::Handler => {
                let job = writer.apply(hold, &job, job.start(owner, None)).await?;
                // Acknowledged before the work: RUNNING is stored, so from here on the reconciler recovers
                // the job from its document, and a redelivery would only disturb it.
                writer.ack(hold, delivery).await?;
                return Ok(Some(job));
            }
        }
        writer.ack(hold, delivery).await?;
        Ok(None)
    }

    /// Hands the job over to its executor. The inner error rolls the dispatch back.
    async fn hand_over(&self, hold: &Hold, job: &Job) -> Result<Result<(), String>, PlaneError> {
        // The only publication of the scheduler; a lost owner must not make it.
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
