//! What one identity may have in the plane at once. The store counts it, so all daemons share the count.

use crate::error::PlaneError;
use crate::plane::{Plane, UNAUTHENTICATED};
use crate::state::JobState;
use crate::store::{DocumentKind, DocumentQuery, KeptEnded, OwnerQuota, WriteRefusal};
use crate::workflow::RunState;

/// What one identity may have in the plane at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaneQuotas {
    /// Jobs that have not ended, apart from those of runs.
    pub jobs: u64,
    /// Runs that have not ended.
    pub runs: u64,
    /// Workflows.
    pub workflows: u64,
}

/// How many ended jobs and runs are kept for each that may be open. The oldest beyond that are deleted.
const KEPT_ENDED_PER_OPEN: u64 = 2;

impl PlaneQuotas {
    /// These limits.
    #[must_use]
    pub fn new(jobs: u64, runs: u64, workflows: u64) -> Self {
        Self { jobs, runs, workflows }
    }
}

impl Plane {
    /// The same plane with limits for what its principal may have. Without a principal there are none.
    #[must_use]
    pub fn with_quotas(&self, quotas: PlaneQuotas) -> Self {
        Self { quotas: Some(quotas), ..self.clone() }
    }

    /// The limit for a new document of this kind.
    pub(crate) fn quota(&self, kind: DocumentKind) -> Option<OwnerQuota> {
        let quotas = self.quotas.filter(|_| self.owner().is_some())?;
        let (limit, (ended, open)): (u64, (Vec<_>, Vec<_>)) = match kind {
            DocumentKind::Job => {
                let (ended, open): (Vec<_>, Vec<_>) = JobState::all().partition(|state| state.is_terminal());
                (quotas.jobs, (names(ended, JobState::as_str), names(open, JobState::as_str)))
            }
            DocumentKind::Run => {
                let (ended, open): (Vec<_>, Vec<_>) =
                    RunState::ALL.into_iter().partition(|state| state.is_terminal());
                (quotas.runs, (names(ended, RunState::as_str), names(open, RunState::as_str)))
            }
            DocumentKind::Workflow => (quotas.workflows, (Vec::new(), vec!["ACTIVE"])),
            DocumentKind::CancelRequest => return None,
        };
        let kept = limit.saturating_mul(KEPT_ENDED_PER_OPEN);
        let kept_ended = (!ended.is_empty()).then_some(KeptEnded { states: ended, limit: kept });
        Some(OwnerQuota { states: open, limit, kept_ended })
    }

    /// Checks the quota for a new document that is written later, for example a run that the engine writes.
    pub(crate) async fn check_quota(&self, kind: DocumentKind) -> Result<(), PlaneError> {
        let (Some(quota), Some(owner)) = (self.quota(kind), self.owner()) else {
            return Ok(());
        };
        let mut query = DocumentQuery::new(kind, quota.states, 0);
        query.owner = Some(owner.to_owned());
        let limit = quota.limit;
        if self.writer.call(self.writer.store.count(&query)).await? >= limit {
            return Err(WriteRefusal::QuotaReached { kind, limit }.into());
        }
        Ok(())
    }

    /// The principal whose quota new documents count against.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.principal.as_deref().filter(|principal| *principal != UNAUTHENTICATED)
    }
}

fn names<S>(states: Vec<S>, name: fn(S) -> &'static str) -> Vec<&'static str> {
    states.into_iter().map(name).collect()
}
