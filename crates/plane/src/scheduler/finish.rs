//! One attempt at a job's work, and how it ends.

use std::time::Duration;

use leasehold_core::clock::ClockExt;
use leasehold_core::{Hold, Lost};
use serde_json::Value;

use super::{Grip, Scheduler};
use crate::error::PlaneError;
use crate::job::{Job, Work};

/// How an attempt came to its end.
enum End {
    Done(Result<Value, String>),
    CalledOff,
    TimedOut,
    /// A resource was lost; the job itself is still ours to give back.
    Without(Lost),
}

impl Scheduler {
    /// Works on the job and writes how that ended, as long as the hold is good. On its loss this future is dropped where
    /// it stands, and the command or handler with it.
    pub(super) async fn attempt(&self, hold: &Hold, grip: &Grip, job: &Job) -> Result<(), PlaneError> {
        let end = {
            let at_work = self.enter(&job.id);
            let limit = self.ledger.settings.look(job, None).unwrap_or(Duration::MAX);
            tokio::select! {
                biased;
                lost = grip.lost() => End::Without(lost),
                () = at_work.token.cancelled() => End::CalledOff,
                done = self.work(hold, grip, job) => End::Done(done),
                () = self.ledger.locks.clock().sleep(limit) => End::TimedOut,
            }
            // Whatever was still at work is dropped, and so ended, before its end is written.
        };
        let change = match end {
            End::Done(Ok(value)) if grip.check().is_ok() => job.succeed(value),
            End::Done(Ok(_)) => job.lose("a resource was lost before it was done"),
            End::Done(Err(why)) => job.fail(&why, &*self.ledger.random),
            End::CalledOff => {
                let why = self.ledger.wished_off(&job.id).await?;
                job.cancel(why.as_deref().unwrap_or("called off"))
            }
            End::TimedOut => job.time_out("its time for one attempt, or its deadline, is over"),
            End::Without(lost) => job.lose(&lost.to_string()),
        };
        self.ledger.apply_until_lost(hold, job, change).await?;
        Ok(())
    }

    async fn work(&self, hold: &Hold, grip: &Grip, job: &Job) -> Result<Value, String> {
        match (&job.spec.work, &self.works.exec) {
            (Work::Exec(argv), Some(exec)) => exec.run(argv, hold, job, &grip.fences()).await,
            _ => match self.works.handlers.get(&job.spec.topic) {
                Some(handler) => handler.run(hold, job).await,
                None => Err("nobody does this work here".to_owned()),
            },
        }
    }
}
