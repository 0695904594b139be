//! What a job needs for itself alone: taken all or nothing, in order, beside the job's own lock.

use leasehold_core::{Acquired, Hold, Lost};
use serde_json::{Map, Value, json};

use crate::error::PlaneError;
use crate::job::Job;
use crate::ledger::Ledger;

/// A job's resources, held.
#[derive(Debug, Default)]
pub(crate) struct Grip {
    holds: Vec<Hold>,
}

impl Grip {
    /// Takes all, or none: what was taken before one turned out to be busy is given back at once. In the order of
    /// their names, so that two jobs never wait for each other in a circle.
    pub(crate) async fn take(ledger: &Ledger, job: &Job) -> Result<Option<Self>, PlaneError> {
        let mut names = Vec::new();
        for resource in &job.spec.resources {
            names.push(job.spec.resource(resource)?);
        }
        names.sort();
        names.dedup();
        let mut grip = Self::default();
        for name in names {
            let asked = ledger
                .locks
                .class(&job.spec.class)
                .wait(std::time::Duration::ZERO);
            match asked.acquire(name).await {
                Ok(Acquired::Held(hold)) => grip.holds.push(hold),
                Ok(Acquired::Busy(_)) => {
                    grip.give_back().await;
                    return Ok(None);
                }
                Err(error) => {
                    grip.give_back().await;
                    return Err(error.into());
                }
            }
        }
        Ok(Some(grip))
    }

    /// Gives all back.
    pub(crate) async fn give_back(self) {
        for hold in self.holds.into_iter().rev() {
            hold.release().await;
        }
    }

    /// Are all still ours?
    pub(crate) fn check(&self) -> Result<(), Lost> {
        self.holds.iter().try_for_each(Hold::check)
    }

    /// Ends when one of them is lost.
    pub(crate) async fn lost(&self) -> Lost {
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

    /// Each with its fence, for the work to send along.
    pub(crate) fn fences(&self) -> Value {
        let fence = |hold: &Hold| json!(hold.unfenced().ok().flatten());
        let all: Map<_, _> = self
            .holds
            .iter()
            .map(|hold| (hold.name().to_string(), fence(hold)))
            .collect();
        Value::Object(all)
    }
}
