//! One attempt at a job's work, and the change that its end makes.

use std::pin::pin;
use std::time::Duration;

use leasehold_core::clock::ClockExt;
use leasehold_core::{Hold, LeaseLost};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{ResourceHolds, Scheduler, while_held};
use crate::error::PlaneError;
use crate::job::{Job, Work};

/// A job whose work is to be done here.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) job: Job,
    pub(super) resources: ResourceHolds,
    /// How long a command may take to stop; all holds were acquired with it.
    pub(super) stop_grace: Duration,
}

enum AttemptEnd {
    Done(Result<Value, String>),
    Cancelled,
    TimedOut,
    /// A resource was lost, but the job's own lock is still held, so the loss can be written.
    ResourceLost(LeaseLost),
}

impl Scheduler {
    /// Does the job's work and writes its end, if the hold is still valid. The resources are released after
    /// the last process of the work has ended.
    pub(super) async fn run_attempt(&self, hold: &Hold, attempt: Attempt) -> Result<(), PlaneError> {
        let end = self.work_to_end(hold, &attempt).await;
        let out = match end {
            Ok(end) => while_held(hold, self.write_end(hold, &attempt, end)).await,
            Err(lost) => Err(lost.into()),
        };
        attempt.resources.release_all().await;
        out
    }

    async fn work_to_end(&self, hold: &Hold, attempt: &Attempt) -> Result<AttemptEnd, LeaseLost> {
        let Attempt { job, resources, .. } = attempt;
        let at_work = self.register(&job.id);
        let limit = self.writer.settings.due_in(job, None).unwrap_or(Duration::MAX);
        let stop = CancellationToken::new();
        let mut work = pin!(self.do_work(hold, attempt, &stop));
        let ended = hold
            .run(async {
                tokio::select! {
                    // A lost resource or a cancel request wins over a result that is ready at the same time.
                    biased;
                    lost = resources.lost() => AttemptEnd::ResourceLost(lost),
                    () = at_work.token.cancelled() => AttemptEnd::Cancelled,
                    done = work.as_mut() => AttemptEnd::Done(done),
                    () = self.writer.locks.clock().sleep(limit) => AttemptEnd::TimedOut,
                }
            })
            .await;
        let finished = matches!(ended, Ok(AttemptEnd::Done(_)) | Err((_, Some(AttemptEnd::Done(_)))));
        if !finished && matches!(job.spec.work, Work::Exec(_)) {
            // A command stops by signals, and has stopped before its end is written. A handler stops when
            // its future is dropped, at the end of this function.
            stop.cancel();
            let _stopped = work.await;
        }
        ended.map_err(|(lost, _)| lost)
    }

    async fn write_end(&self, hold: &Hold, attempt: &Attempt, end: AttemptEnd) -> Result<(), PlaneError> {
        let Attempt { job, resources, .. } = attempt;
        let change = match end {
            // Checked again: the work may finish between a resource's expiry and the notice of its loss.
            AttemptEnd::Done(Ok(value)) if resources.check().is_ok() => job.succeed(value),
            AttemptEnd::Done(Ok(_)) => job.owner_lost("a resource was lost before it was done"),
            AttemptEnd::Done(Err(why)) => job.fail(&why, &*self.writer.random),
            AttemptEnd::Cancelled => {
                let request = self.writer.open_cancel_request(&job.id).await?;
                request.map_or_else(|| job.cancel("cancelled"), |request| request.change(job))
            }
            AttemptEnd::TimedOut => job.time_out("its time for one attempt, or its deadline, is over"),
            AttemptEnd::ResourceLost(lost) => job.owner_lost(&lost.to_string()),
        };
        self.writer.apply_until_lost(hold, job, change).await?;
        Ok(())
    }

    async fn do_work(
        &self,
        hold: &Hold,
        attempt: &Attempt,
        stop: &CancellationToken,
    ) -> Result<Value, String> {
        let Attempt { job, resources, stop_grace } = attempt;
        match (&job.spec.work, &self.works.exec) {
            (Work::Exec(argv), Some(exec)) => exec.run(argv, hold, resources, job, *stop_grace, stop).await,
            _ => match self.works.handlers.get(&job.spec.topic) {
                Some(handler) => handler.run(hold, job).await,
                None => Err("this replica has no handler for the job's topic".to_owned()),
            },
        }
    }
}
