//! What the verbs ask of a plane, whoever answers.

use leasehold_plane::approval::Verdict;
use leasehold_plane::workflow::{StartRun, Workflow};
use leasehold_plane::{JobSpec, JobState, Work};
use serde_json::Value;

/// One question. Each is answered with one JSON document, the same from the store and from a daemon.
#[derive(Debug)]
pub(crate) enum Question {
    /// Submit this job.
    Submit(Box<JobSpec>),
    /// A job with its `history`.
    Job { id: String },
    /// Jobs.
    Jobs {
        states: Vec<JobState>,
        topic: Option<String>,
        limit: u32,
    },
    /// Call a job off.
    Cancel { id: String, reason: String },
    /// Submit a given-up job once more.
    Retry { id: String },
    /// Put a workflow there. The text is its file's, and was checked.
    Apply { workflow: Box<Workflow>, text: String },
    /// Start a run.
    Start(Box<StartRun>),
    /// A run with its `timeline`.
    Run { id: String },
    /// Runs.
    Runs { limit: u32 },
    /// Call a run off.
    CancelRun { id: String, reason: String },
    /// Run an ended run again.
    Rerun { id: String, from: String },
    /// The jobs that wait for a person.
    Approvals { limit: u32 },
    /// Let a job run.
    Approve { id: String, verdict: Verdict },
    /// Do not.
    Reject { id: String, verdict: Verdict },
    /// Change what it would do.
    Repair {
        id: String,
        payload: Value,
        verdict: Verdict,
    },
}

impl Question {
    /// What is to be done, after "cannot".
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Submit(_) => "submit the job".into(),
            Self::Job { id } => format!("look at job {id}"),
            Self::Jobs { .. } => "list the jobs".into(),
            Self::Cancel { id, .. } => format!("call job {id} off"),
            Self::Retry { id } => format!("submit job {id} once more"),
            Self::Apply { workflow, .. } => format!("apply workflow {}", workflow.name),
            Self::Start(start) => format!("start a run of {}", start.workflow),
            Self::Run { id } => format!("look at run {id}"),
            Self::Runs { .. } => "list the runs".into(),
            Self::CancelRun { id, .. } => format!("call run {id} off"),
            Self::Rerun { id, .. } => format!("run {id} again"),
            Self::Approvals { .. } => "list what waits for a person".into(),
            Self::Approve { id, .. } => format!("approve job {id}"),
            Self::Reject { id, .. } => format!("reject job {id}"),
            Self::Repair { id, .. } => format!("repair job {id}"),
        }
    }

    /// It changes nothing.
    pub(crate) fn looks(&self) -> bool {
        matches!(
            self,
            Self::Job { .. }
                | Self::Jobs { .. }
                | Self::Run { .. }
                | Self::Runs { .. }
                | Self::Approvals { .. }
        )
    }

    /// The grant that a daemon's rules demand for it, as `token new --grant` takes it.
    pub(crate) fn grant(&self) -> String {
        let of = |kind: &str, id: Option<&String>| id.map_or(kind.to_owned(), |id| format!("{kind}:{id}"));
        match self {
            Self::Submit(spec) if matches!(spec.work, Work::Exec(_)) => {
                format!("admin:{}", of("job", spec.id.as_ref()))
            }
            Self::Submit(spec) => format!("hold:{}", of("job", spec.id.as_ref())),
            Self::Job { id } => format!("read:job:{id}"),
            Self::Jobs { .. } | Self::Approvals { .. } => "read:job".into(),
            Self::Cancel { id, .. }
            | Self::Approve { id, .. }
            | Self::Reject { id, .. }
            | Self::Repair { id, .. } => format!("hold:job:{id}"),
            Self::Retry { id } => format!("admin:job:{id}"),
            Self::Apply { .. } => "admin:workflow".into(),
            Self::Start(start) => format!("hold:{}", of("run", start.id.as_ref())),
            Self::Run { id } => format!("read:run:{id}"),
            Self::Runs { .. } => "read:run".into(),
            Self::CancelRun { id, .. } | Self::Rerun { id, .. } => format!("hold:run:{id}"),
        }
    }
}
