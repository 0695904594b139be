//! One run of a workflow: a versioned document with the state of all its steps.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use leasehold_core::InvalidInput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::Workflow;
use crate::job::{key_scope, step_job_id};
use crate::store::Document;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RunState {
    /// Started; no engine has handled it yet.
    #[default]
    Pending,
    /// Some steps have not ended.
    Running,
    /// All steps are done.
    Succeeded,
    /// All steps have ended, and at least one was not done.
    Failed,
    /// Cancelled by request.
    Cancelled,
}

impl RunState {
    /// All states, in the order of a run's life.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The state's name, as stored and displayed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The run has ended. Only a rerun leaves such a state.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// The states that this one may follow.
    #[must_use]
    pub fn predecessors(self) -> Vec<&'static str> {
        match self {
            Self::Pending => Vec::new(),
            // From every state: a rerun takes an ended run back to RUNNING.
            Self::Running => Self::ALL.iter().map(|state| state.as_str()).collect(),
            _ => vec![Self::Pending.as_str(), Self::Running.as_str()],
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RunState {
    type Err = InvalidInput;
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| InvalidInput::new("state", text, "is not the state of a run"))
    }
}

/// The status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StepStatus {
    /// A step it needs is not done yet.
    #[default]
    Waiting,
    /// Its job has not ended.
    Running,
    /// A delay that is not over.
    Delayed,
    /// Its job succeeded, or its delay is over.
    Done,
    /// Its job ended without success.
    Failed,
    /// A step it needs was not done.
    Skipped,
    /// The run was cancelled.
    Cancelled,
}

impl StepStatus {
    /// The step has ended in this attempt.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running | Self::Delayed)
    }
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name in the documents.
        self.serialize(f)
    }
}

/// The progress of one step in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StepRun {
    /// The step's present status.
    pub status: StepStatus,
    /// How often it was begun. Each attempt has its own job.
    pub attempt: u32,
    /// The id of its job; none before it begins, and for a delay.
    pub job: Option<String>,
    /// The end of a delay, in milliseconds of the store's clock.
    pub due: Option<u64>,
    /// Why it failed, was skipped or was cancelled.
    pub why: Option<String>,
}

/// One run. The fields without serialisation are columns of the store, not part of the body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Run {
    /// The run's id: the key of its document and part of its lock's name.
    #[serde(skip)]
    pub id: String,
    /// Grows with each write.
    #[serde(skip)]
    pub version: u64,
    /// The run's present state.
    #[serde(skip)]
    pub state: RunState,
    /// When it was started, in milliseconds of the store's clock.
    #[serde(skip)]
    pub created: u64,
    /// When it was last written, by the same clock.
    #[serde(skip)]
    pub updated: u64,
    /// The store's clock when it was read. The other times are compared with this one only.
    #[serde(skip)]
    pub now: u64,
    /// A copy of the workflow from the start of the run: later versions do not affect it.
    pub workflow: Workflow,
    /// The organisation it belongs to.
    pub org: String,
    /// The principal that started it; none for runs of versions before principals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// The principals that ran it again, the latest last. They may decide about its jobs as little as the
    /// one that started it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<String>,
    /// Input given at the start; each job without its own payload gets it.
    pub input: Value,
    /// The progress of each step, by step id.
    pub steps: BTreeMap<String, StepRun>,
}

impl Run {
    /// A run that has not begun: all its steps wait.
    #[must_use]
    pub fn new(id: String, workflow: Workflow, org: String, input: Value) -> Self {
        let steps = workflow.steps.iter().map(|step| (step.id.clone(), StepRun::default())).collect();
        Self {
            id,
            version: 0,
            state: RunState::Pending,
            created: 0,
            updated: 0,
            now: 0,
            workflow,
            org,
            started_by: None,
            requesters: Vec::new(),
            input,
            steps,
        }
    }

    /// Reads a stored run.
    ///
    /// # Errors
    /// The stored document is not a run.
    pub fn read(doc: &Document) -> Result<Self, InvalidInput> {
        let bad = |why: String| InvalidInput::new("run", doc.id.clone(), why);
        let mut run: Self = serde_json::from_str(&doc.body).map_err(|error| bad(error.to_string()))?;
        run.id.clone_from(&doc.id);
        run.version = doc.version;
        run.state = doc.state.parse()?;
        (run.created, run.updated, run.now) = (doc.created, doc.updated, doc.now);
        Ok(run)
    }

    /// The scope of its idempotency key; see
    /// [`StartRunRequest::key_scope`](super::StartRunRequest::key_scope).
    #[must_use]
    pub fn key_scope(&self) -> &str {
        key_scope(&self.org, Some(&self.id))
    }

    /// The job id of one attempt of a step. The same attempt always has the same id.
    #[must_use]
    pub fn job_id(&self, step: &str, attempt: u32) -> String {
        step_job_id(&self.id, step, attempt)
    }

    /// The principal that requested it last: its jobs are made on behalf of that one.
    #[must_use]
    pub fn requester(&self) -> Option<&str> {
        self.requesters.last().or(self.started_by.as_ref()).map(String::as_str)
    }
}
