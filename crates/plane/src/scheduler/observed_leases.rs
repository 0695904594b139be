//! Lease ends of jobs that other replicas work on, as the reconciler last observed them.
//!
//! The takeover metric measures from the observed end of the old lease to the takeover.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::clock::Moment;

use crate::job::Job;

/// Observed lease ends by job id.
#[derive(Debug, Default)]
pub(crate) struct ObservedLeases(Mutex<HashMap<String, Moment>>);

impl ObservedLeases {
    /// Records when the current lease of a job ends unless it is renewed.
    pub(crate) fn record(&self, job: &str, over_at: Option<Moment>) {
        if let Some(over_at) = over_at {
            self.table().insert(job.to_owned(), over_at);
        }
    }

    /// Removes and returns the observed lease end of a job.
    pub(crate) fn take_end(&self, job: &str) -> Option<Moment> {
        self.table().remove(job)
    }

    /// Drops the entries of all jobs but these.
    pub(crate) fn retain(&self, jobs: &[Job]) {
        let mut table = self.table();
        // Without this the table would grow by each job that ended normally.
        let known = std::mem::take(&mut *table);
        table.extend(
            jobs.iter().filter_map(|job| known.get_key_value(&job.id)).map(|(id, at)| (id.clone(), *at)),
        );
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Moment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
