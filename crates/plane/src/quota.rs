//! What one identity may have in the plane at once. The store counts it, so all daemons share the count.

use crate::error::PlaneError;
use crate::plane::{Plane, UNAUTHENTICATED};
use crate::state::JobState;
use crate::store::{DocumentKind, DocumentQuery, OwnerQuota, WriteRefusal};
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
        let (limit, states): (u64, Vec<&'static str>) = match kind {
            DocumentKind::Job => {
                let open = JobState::all().filter(|state| !state.is_terminal());
                (quotas.jobs, open.map(JobState::as_str).collect())
            }
            DocumentKind::Run => {
                let open = RunState::ALL.into_iter().filter(|state| !state.is_terminal());
                (quotas.runs, open.map(RunState::as_str).collect())
            }
            DocumentKind::Workflow => (quotas.workflows, vec!["ACTIVE"]),
            DocumentKind::CancelRequest => return None,
        };
        Some(OwnerQuota { states, limit })
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
