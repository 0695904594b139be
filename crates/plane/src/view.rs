//! Jobs, runs, events and lists of them as JSON documents: what the daemon returns, its clients read, and the
//! CLI prints.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::job::{Decision, Job};
use crate::state::JobState;
use crate::store::DocumentEvent;
use crate::workflow::{Run, RunState};

/// The version of these documents. It grows when a field is removed or changes its meaning, not when one
/// is added.
pub const SCHEMA_VERSION: u32 = 1;

/// A job as displayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobView {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// The job's id; unique in the plane.
    pub id: String,
    /// The job's present state.
    pub state: JobState,
    /// Grows with each write.
    pub version: u64,
    /// What a person approves: changes when the job is repaired.
    pub snapshot: String,
    /// When it was submitted, in milliseconds of the store's clock.
    pub created_ms: u64,
    /// When it was last written.
    pub updated_ms: u64,
    /// When the repair loops act on it, unless its state changes before.
    pub due_ms: Option<u64>,
    /// The store's clock when it was read. Compare the other times with this one.
    pub now_ms: u64,
    /// All remaining fields of the document.
    #[serde(flatten)]
    pub job: Job,
}

impl From<Job> for JobView {
    fn from(mut job: Job) -> Self {
        job.claim = None;
        Self {
            schema_version: SCHEMA_VERSION,
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

/// A job after a decision, as displayed to a caller that may decide about it but not read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DecidedJob {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// The job's id.
    pub id: String,
    /// The job's present state.
    pub state: JobState,
    /// Grows with each write.
    pub version: u64,
    /// What a person approves: a repair has changed it.
    pub snapshot: String,
    /// The decision, if one was made.
    pub decision: Option<Decision>,
}

impl From<Job> for DecidedJob {
    fn from(job: Job) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            id: job.id.clone(),
            state: job.state,
            version: job.version,
            snapshot: job.snapshot(),
            decision: job.decision,
        }
    }
}

/// The response to a decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub enum DecisionView {
    /// The whole job, for a caller that may read it.
    Job(Box<JobView>),
    /// What every caller that may decide gets.
    Decided(DecidedJob),
}

/// A run as displayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct RunView {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// The run's id; unique in the plane.
    pub id: String,
    /// The run's present state.
    pub state: RunState,
    /// Grows with each write.
    pub version: u64,
    /// When it was started, in milliseconds of the store's clock.
    pub created_ms: u64,
    /// When it was last written.
    pub updated_ms: u64,
    /// The store's clock when it was read. Compare the other times with this one.
    pub now_ms: u64,
    /// All remaining fields of the document.
    #[serde(flatten)]
    pub run: Run,
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
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

/// An event of a job or a run. Each write makes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct EventView {
    /// Grows when a field changes its meaning.
    pub schema_version: u32,
    /// The version that the write made.
    pub version: u64,
    /// The time of the write, in milliseconds of the store's clock.
    pub at_ms: u64,
    /// `from`, `to`, `by`, `why`, `class`, `fence`, `attempt`, `local_only`, `steps`: those that apply to this event.
    #[serde(flatten)]
    pub body: Map<String, Value>,
}

impl From<&DocumentEvent> for EventView {
    fn from(event: &DocumentEvent) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            version: event.version,
            at_ms: event.at,
            body: serde_json::from_str(&event.body).unwrap_or_default(),
        }
    }
}

/// An event as a JSON value.
#[must_use]
pub fn event_json(event: &DocumentEvent) -> Value {
    serde_json::to_value(EventView::from(event)).unwrap_or_default()
}

/// A list of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Jobs))]
pub struct JobList {
    /// Increases when a field changes its meaning.
    pub schema_version: u32,
    /// The jobs, most urgent first.
    pub jobs: Vec<JobView>,
    /// There may be more that the caller may read: at the limit, or because the daemon has stopped its search.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The jobs that wait for a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Approvals))]
pub struct ApprovalList {
    /// Increases when a field changes its meaning.
    pub schema_version: u32,
    /// The waiting jobs.
    pub approvals: Vec<JobView>,
    /// There may be more that the caller may read: at the limit, or because the daemon has stopped its search.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A list of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Runs))]
pub struct RunList {
    /// Increases when a field changes its meaning.
    pub schema_version: u32,
    /// The matching runs.
    pub runs: Vec<RunView>,
    /// There may be more that the caller may read: at the limit, or because the daemon has stopped its search.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The events of a job or a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Events))]
pub struct EventList {
    /// Increases when a field changes its meaning.
    pub schema_version: u32,
    /// The id of the job or run.
    pub id: String,
    /// The events, oldest first.
    pub events: Vec<EventView>,
    /// How many events between the first and the newest ones are no longer kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

impl EventList {
    /// The list of these events.
    #[must_use]
    pub fn new(id: String, events: &[DocumentEvent]) -> Self {
        let events: Vec<_> = events.iter().map(EventView::from).collect();
        let dropped = dropped_events(&events);
        Self { schema_version: SCHEMA_VERSION, id, events, dropped }
    }
}

/// How many events of a history are no longer kept.
#[must_use]
pub fn dropped_events(events: &[EventView]) -> u64 {
    // Each version has one event.
    let newest = events.last().map_or(0, |event| event.version);
    newest.saturating_sub(events.len() as u64)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The workflow that was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Applied))]
pub struct AppliedWorkflow {
    /// Increases when a field changes its meaning.
    pub schema_version: u32,
    /// The workflow's name.
    pub name: String,
    /// The workflow's version; unchanged if the file was the same.
    pub version: u64,
}

/// The reason for an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Why))]
pub struct ReasonRequest {
    /// The reason; appears in the history and the audit log.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub reason: String,
}

/// The step from which to run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Rerun))]
pub struct RerunRequest {
    /// The id of the first step to run again.
    pub from: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_how_many_events_are_no_longer_kept() {
        let event = |version| DocumentEvent { version, at: 0, body: "{}".into() };
        for (versions, dropped) in [(vec![], 0), (vec![1, 2], 0), (vec![1, 2, 503, 504], 500)] {
            let events: Vec<_> = versions.into_iter().map(event).collect();
            let list = EventList::new("j".into(), &events);
            assert_eq!((list.events.len(), list.dropped), (events.len(), dropped));
            let shown = serde_json::to_value(&list).unwrap();
            assert_eq!(shown.get("dropped").and_then(Value::as_u64), (dropped > 0).then_some(dropped));
        }
    }
}
