//! Jobs, runs and events as JSON documents: what the command prints and the daemon answers.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::job::Job;
use crate::state::JobState;
use crate::store::Event;
use crate::workflow::{Run, RunState};

/// Grows when a field changes its meaning or goes; new fields may come without it.
pub const SCHEMA: u32 = 1;

/// A job as it is shown.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobView {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// Its id.
    pub id: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Grows with each write.
    pub version: u64,
    /// What a person approves: changes when the job is repaired.
    pub snapshot: String,
    /// When it was submitted, in milliseconds of the store's clock.
    pub created_ms: u64,
    /// When it was last written.
    pub updated_ms: u64,
    /// When somebody should look at it.
    pub due_ms: Option<u64>,
    /// The store's clock when it was read: what the other times are to be compared with.
    pub now_ms: u64,
    /// Everything else.
    #[serde(flatten)]
    pub job: Job,
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        Self {
            schema_version: SCHEMA,
            id: job.id.clone(),
            state: job.state,
            version: job.version,
            snapshot: job.snapshot(),
            created_ms: job.created,
            updated_ms: job.updated,
            due_ms: job.due,
            now_ms: job.now,
            job,
        }
    }
}

/// A run as it is shown.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunView {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// Its id.
    pub id: String,
    /// Where it is in its life.
    pub state: RunState,
    /// Grows with each write.
    pub version: u64,
    /// When it was started, in milliseconds of the store's clock.
    pub created_ms: u64,
    /// When it was last written.
    pub updated_ms: u64,
    /// The store's clock when it was read: what the other times are to be compared with.
    pub now_ms: u64,
    /// Everything else.
    #[serde(flatten)]
    pub run: Run,
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        Self {
            schema_version: SCHEMA,
            id: run.id.clone(),
            state: run.state,
            version: run.version,
            created_ms: run.created,
            updated_ms: run.updated,
            now_ms: run.now,
            run,
        }
    }
}

/// A job.
#[must_use]
pub fn job(job: &Job) -> Value {
    serde_json::to_value(JobView::from(job.clone())).unwrap_or_default()
}

/// A run.
#[must_use]
pub fn run(run: &Run) -> Value {
    serde_json::to_value(RunView::from(run.clone())).unwrap_or_default()
}

/// An event of a job or a run: one for each write.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventView {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// The version that the write made.
    pub version: u64,
    /// When, in milliseconds of the store's clock.
    pub at_ms: u64,
    /// `from`, `to`, `by`, `why`, `class`, `fence`, `attempt`, `local_only`, `steps`: as far as they say something here.
    #[serde(flatten)]
    pub body: Map<String, Value>,
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        Self {
            schema_version: SCHEMA,
            version: event.version,
            at_ms: event.at,
            body: serde_json::from_str(&event.body).unwrap_or_default(),
        }
    }
}

/// An event of a job or a run.
#[must_use]
pub fn event(event: &Event) -> Value {
    serde_json::to_value(EventView::from(event)).unwrap_or_default()
}
