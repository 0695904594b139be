//! The scheduler: takes mail about jobs, and takes each job one step further under its lock.
//!
//! `turn` is one turn of one job: busy and error are answered by redelivery, a lost hold by silence. `finish` is how an
//! attempt ends. `pull` is the same for workers that ask for work. The lock of a job is held for as long as this
//! replica works on it (ADR 0011): whoever gets the lock of a job in hands knows that its owner is gone.

mod finish;
mod leases;
mod pull;
mod resource;
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

pub use pull::{Claim, Claimed, Reported};
pub(crate) use resource::Grip;
pub(crate) use turn::guarded;

use crate::ledger::Ledger;
use crate::work::Works;

/// One replica's scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    pub(crate) ledger: Ledger,
    works: Works,
    /// What this replica works on now, each with the token that calls it off.
    working: Arc<Mutex<HashMap<String, CancellationToken>>>,
    /// What the reconciler saw of others' leases.
    pub(crate) leases: Arc<leases::Leases>,
}

impl Scheduler {
    /// A scheduler that can do this work.
    #[must_use]
    pub fn new(ledger: Ledger, works: Works) -> Self {
        Self {
            ledger,
            works,
            working: Arc::default(),
            leases: Arc::default(),
        }
    }

    /// Calls the work on a job off, if it is done here.
    #[must_use]
    pub fn call_off(&self, job: &str) -> bool {
        let working = self.working();
        let found = working.get(job);
        found.inspect(|token| token.cancel());
        found.is_some()
    }

    /// The jobs that are worked on here.
    #[must_use]
    pub fn at_work(&self) -> Vec<String> {
        self.working().keys().cloned().collect()
    }

    fn working(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a job into the list of those worked on, until the answer is dropped.
    fn enter(&self, job: &str) -> AtWork<'_> {
        let token = CancellationToken::new();
        self.working().insert(job.to_owned(), token.clone());
        AtWork {
            scheduler: self,
            job: job.to_owned(),
            token,
        }
    }
}

struct AtWork<'a> {
    scheduler: &'a Scheduler,
    job: String,
    token: CancellationToken,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.scheduler.working().remove(&self.job);
    }
}
