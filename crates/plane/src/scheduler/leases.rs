//! When the leases of jobs in others' hands run out, as the reconciler last saw them: how late a takeover is, is counted from there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::clock::Moment;

use crate::job::Job;

/// By job.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<String, Moment>>);

impl Leases {
    /// Somebody has it, until then if nobody renews.
    pub(crate) fn saw(&self, job: &str, over_at: Option<Moment>) {
        if let Some(over_at) = over_at {
            self.table().insert(job.to_owned(), over_at);
        }
    }

    /// When its lease ran out, if it was seen.
    pub(crate) fn over_at(&self, job: &str) -> Option<Moment> {
        self.table().remove(job)
    }

    /// Forgets all but these.
    pub(crate) fn keep(&self, jobs: &[Job]) {
        let mut table = self.table();
        let known = std::mem::take(&mut *table);
        table.extend(
            jobs.iter()
                .filter_map(|job| known.get_key_value(&job.id))
                .map(|(id, at)| (id.clone(), *at)),
        );
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Moment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
