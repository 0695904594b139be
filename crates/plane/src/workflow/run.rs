//! One run of a workflow: a versioned document with everything that happened to its steps.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use leasehold_core::Invalid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::doc::Workflow;
use crate::store::Doc;

/// Where a run is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RunState {
    /// Started; no engine has taken it yet.
    #[default]
    Pending,
    /// Under way.
    Running,
    /// Every step is done.
    Succeeded,
    /// A step failed.
    Failed,
    /// Someone called it off.
    Cancelled,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// As it is stored and shown.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// It is over, unless somebody reruns it from a step.
    #[must_use]
    pub fn ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// What it may follow. An ended run only ever runs again by a rerun.
    #[must_use]
    pub fn before(self) -> Vec<&'static str> {
        match self {
            Self::Pending => Vec::new(),
            Self::Running => Self::ALL.iter().map(|state| state.word()).collect(),
            _ => vec![Self::Pending.word(), Self::Running.word()],
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for RunState {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|state| state.word() == text);
        found.ok_or_else(|| Invalid::new("state", text, "is not the state of a run"))
    }
}

/// Where a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StepStatus {
    /// What it needs is not done yet.
    #[default]
    Waiting,
    /// Its job is under way.
    Running,
    /// It lets time pass.
    Delayed,
    /// Done.
    Done,
    /// Its job failed for good.
    Failed,
    /// What it needs will never be done.
    Skipped,
    /// The run was called off.
    Cancelled,
}

impl StepStatus {
    /// Nothing more comes.
    #[must_use]
    pub fn ended(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running | Self::Delayed)
    }
}

/// What happened to a step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StepRun {
    /// Where it is.
    pub status: StepStatus,
    /// How often it was begun: each time with a job of its own.
    pub attempt: u32,
    /// The job that does it.
    pub job: Option<String>,
    /// Until when it lets time pass, in milliseconds of the store's clock.
    pub due: Option<u64>,
    /// How it ended.
    pub why: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Run {
    /// Its id.
    #[serde(skip)]
    pub id: String,
    /// Grows with each write.
    #[serde(skip)]
    pub version: u64,
    /// Where it is in its life.
    #[serde(skip)]
    pub state: RunState,
    /// When it was started, in milliseconds of the store's clock.
    #[serde(skip)]
    pub created: u64,
    /// When it was last written.
    #[serde(skip)]
    pub updated: u64,
    /// The store's clock when it was read.
    #[serde(skip)]
    pub now: u64,
    /// The workflow as it was when the run was started: a later version does not change it.
    pub workflow: Workflow,
    /// Whose it is.
    pub org: String,
    /// What was given with the start; every job of the run gets it.
    pub input: Value,
    /// Its steps.
    pub steps: BTreeMap<String, StepRun>,
}

impl Run {
    /// A run that has not begun.
    #[must_use]
    pub fn new(id: String, workflow: Workflow, org: String, input: Value) -> Self {
        let steps = workflow
            .steps
            .iter()
            .map(|step| (step.id.clone(), StepRun::default()))
            .collect();
        Self {
            id,
            version: 0,
            state: RunState::Pending,
            created: 0,
            updated: 0,
            now: 0,
            workflow,
            org,
            input,
            steps,
        }
    }

    /// Reads a stored one.
    ///
    /// # Errors
    /// What is stored is not a run.
    pub fn read(doc: &Doc) -> Result<Self, Invalid> {
        let bad = |why: String| Invalid::new("run", doc.id.clone(), why);
        let mut run: Self = serde_json::from_str(&doc.body).map_err(|error| bad(error.to_string()))?;
        run.id.clone_from(&doc.id);
        run.version = doc.version;
        run.state = doc.state.parse()?;
        (run.created, run.updated, run.now) = (doc.created, doc.updated, doc.now);
        Ok(run)
    }

    /// The id of the job of a step's attempt. The same attempt is always the same job.
    #[must_use]
    pub fn job_id(&self, step: &str, attempt: u32) -> String {
        format!("{}.{step}.{attempt}", self.id)
    }
}
