//! Checks of starts and definitions before they are made: what they would be refused for, and what is there
//! already. Nothing is changed, so a caller can record a change that will happen.

use super::client::{PreparedStart, StartRunRequest, StartRunResponse, repeated_id, repeated_start};
use super::definition::Workflow;
use crate::error::PlaneError;
use crate::plane::Plane;
use crate::store::DocumentKind;

impl Plane {
    /// Checks whether a definition that [`parse`](super::parse) has accepted can be applied, and changes nothing.
    /// Returns the version in force if it is this definition already.
    ///
    /// # Errors
    /// The caller has as many workflows as it may have, or the store did not respond.
    pub async fn check_workflow(&self, workflow: &Workflow) -> Result<Option<u64>, PlaneError> {
        let there = self.writer.call(self.writer.store.read(DocumentKind::Workflow, &workflow.name)).await?;
        let Some(there) = there else {
            return self.check_quota(DocumentKind::Workflow).await.map(|()| None);
        };
        let body = serde_json::to_string(workflow).unwrap_or_default();
        Ok((there.body == body).then_some(there.version))
    }

    /// Checks the start of a run of this definition, and changes nothing. Returns what a repeated start finds;
    /// `None` if the start would create a run.
    ///
    /// # Errors
    /// The same as for [`start_run`](Self::start_run).
    pub async fn check_start(
        &self,
        workflow: &Workflow,
        start: &StartRunRequest,
    ) -> Result<Option<StartRunResponse>, PlaneError> {
        let (run, key) = match self.prepare_start(workflow.clone(), start.clone()).await? {
            PreparedStart::Repeated(found) => return Ok(Some(*found)),
            PreparedStart::New(run, key) => (*run, key),
        };
        if let Some(there) = self.writer.find_run(&run.id).await? {
            return repeated_id(there, &run).map(Some);
        }
        if let Some(key) = &key
            && let Some(id) =
                self.writer.call(self.writer.store.find_id_by_key(DocumentKind::Run, key)).await?
        {
            return repeated_start(self.writer.run(&id).await?, &run).map(Some);
        }
        self.check_quota(DocumentKind::Run).await?;
        if let Some(limit) = self.writer.settings.max_runs_per_org {
            let running = self.count_running(&run.org).await?;
            if running >= limit {
                return Err(PlaneError::LimitReached { org: run.org, running, limit });
            }
        }
        Ok(None)
    }
}
