//! The scheduler: receives messages about jobs and advances each job under its lock.
//!
//! `delivery` handles one message: a busy lock or an error leads to redelivery, a lost hold to no
//! response at all. `attempt` does the work and writes its end. `pull` serves workers that claim jobs.
//! A replica holds a job's lock for as long as it works on it (ADR 0011). So a client that acquires the
//! lock of an active job knows that the owner is gone.

mod attempt;
mod candidates;
mod delivery;
mod observed_leases;
mod pull;
mod resource_holds;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

pub(crate) use delivery::while_held;
pub use pull::{Claim, ClaimRequest, ClaimedJob, ReportResponse};
pub(crate) use resource_holds::ResourceHolds;

use crate::fenced_writer::FencedWriter;
use crate::work::Executors;

/// One replica's scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    pub(crate) writer: FencedWriter,
    works: Executors,
    /// The jobs that this replica works on, each with the token that cancels it.
    in_progress: Arc<Mutex<HashMap<String, CancellationToken>>>,
    /// Lease ends of other replicas' jobs, as the reconciler observed them.
    pub(crate) leases: Arc<observed_leases::ObservedLeases>,
    claim_positions: Arc<candidates::ClaimPositions>,
}

impl Scheduler {
    /// A scheduler with these executors.
    #[must_use]
    pub fn new(writer: FencedWriter, works: Executors) -> Self {
        Self {
            writer,
            works,
            in_progress: Arc::default(),
            leases: Arc::default(),
            claim_positions: Arc::default(),
        }
    }

    /// Cancels the work on a job if this replica does it; false if it does not.
    #[must_use]
    pub fn cancel_local_work(&self, job: &str) -> bool {
        let working = self.in_progress();
        let found = working.get(job);
        found.inspect(|token| token.cancel());
        found.is_some()
    }

    /// The jobs that this replica works on.
    #[must_use]
    pub fn jobs_in_progress(&self) -> Vec<String> {
        self.in_progress().keys().cloned().collect()
    }

    fn in_progress(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a job as worked on here until the guard is dropped.
    fn register(&self, job: &str) -> JobInProgress<'_> {
        let token = CancellationToken::new();
        self.in_progress().insert(job.to_owned(), token.clone());
        JobInProgress { scheduler: self, job: job.to_owned(), token }
    }
}

struct JobInProgress<'a> {
    scheduler: &'a Scheduler,
    job: String,
    token: CancellationToken,
}

impl Drop for JobInProgress<'_> {
    // By drop, because a lost hold drops the attempt's future at any await point.
    fn drop(&mut self) {
        self.scheduler.in_progress().remove(&self.job);
    }
}
