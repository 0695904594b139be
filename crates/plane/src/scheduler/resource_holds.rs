//! The exclusive resources of a job: acquired all or none, in order, in addition to the job's own lock.

use std::time::Duration;

use leasehold_core::{Acquired, Hold, LeaseLost};
use serde_json::{Map, Value, json};

use crate::error::PlaneError;
use crate::fenced_writer::FencedWriter;
use crate::job::Job;

/// The holds on all resources of one job.
#[derive(Debug, Default)]
pub(crate) struct ResourceHolds {
    holds: Vec<Hold>,
}

impl ResourceHolds {
    /// Acquires all resources, or none: `None` if one of them is busy.
    pub(crate) async fn acquire_all(
        writer: &FencedWriter,
        job: &Job,
        stop_grace: Option<Duration>,
    ) -> Result<Option<Self>, PlaneError> {
        let mut names = Vec::new();
        for resource in &job.spec.resources {
            names.push(job.spec.resource_lock_name(resource)?);
        }
        // In the order of their names, so two jobs that need the same resources cannot each hold a part.
        names.sort();
        names.dedup();
        let mut resources = Self::default();
        for name in names {
            let mut locks = writer
                .locks
                .class(&job.spec.class)
                // Never waits: a job that waits here would keep its own lock and a slot of the replica.
                .wait(Duration::ZERO)
                // As for the job's own lock: its resources may have been stored before they were checked.
                .existing_names();
            if let Some(grace) = stop_grace {
                locks = locks.stop_grace(grace);
            }
            match locks.acquire(name).await {
                Ok(Acquired::Held(hold)) => resources.holds.push(hold),
                Ok(Acquired::Busy(_)) => {
                    resources.release_all().await;
                    return Ok(None);
                }
                Err(error) => {
                    resources.release_all().await;
                    return Err(error.into());
                }
            }
        }
        Ok(Some(resources))
    }

    /// Releases all resources, the last one first.
    pub(crate) async fn release_all(self) {
        for hold in self.holds.into_iter().rev() {
            hold.release().await;
        }
    }

    /// The single holds.
    pub(crate) fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Fails if one of the holds is lost.
    pub(crate) fn check(&self) -> Result<(), LeaseLost> {
        self.holds.iter().try_for_each(Hold::check)
    }

    /// Resolves when one of the holds is lost; never for a job without resources.
    pub(crate) async fn lost(&self) -> LeaseLost {
        let mut waits: Vec<_> = self.holds.iter().map(|hold| Box::pin(hold.lost())).collect();
        std::future::poll_fn(|cx| {
            for wait in &mut waits {
                if let std::task::Poll::Ready(lost) = wait.as_mut().poll(cx) {
                    return std::task::Poll::Ready(lost);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// The fence of each resource by lock name, to be passed to the work.
    pub(crate) fn fences(&self) -> Value {
        let fence = |hold: &Hold| json!(hold.fence_if_any().ok().flatten());
        let all: Map<_, _> = self.holds.iter().map(|hold| (hold.name().to_string(), fence(hold))).collect();
        Value::Object(all)
    }
}
