//! The requests of the verbs to a control plane, independent of how it is reached.

use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::workflow::{StartRunRequest, Workflow};
use leasehold_plane::{JobSpec, JobState, Work};
use serde_json::Value;

/// A request. Its response is one JSON document, the same from the store and from a daemon.
#[derive(Debug)]
pub(crate) enum PlaneRequest {
    Submit(Box<JobSpec>),
    /// Reads a job with its `history`.
    Job {
        id: String,
    },
    Jobs {
        states: Vec<JobState>,
        topic: Option<String>,
        limit: u32,
    },
    Cancel {
        id: String,
        reason: String,
    },
    /// Submits a dead job again, as a new one.
    Retry {
        id: String,
    },
    /// Stores a workflow. `text` is its file, already checked.
    Apply {
        workflow: Box<Workflow>,
        text: String,
    },
    Start(Box<StartRunRequest>),
    /// Reads a run with its `timeline`.
    Run {
        id: String,
    },
    Runs {
        limit: u32,
    },
    CancelRun {
        id: String,
        reason: String,
    },
    /// Runs an ended run again, from the step `from` on.
    Rerun {
        id: String,
        from: String,
    },
    /// Lists the jobs that wait for a decision.
    Approvals {
        limit: u32,
    },
    Approve {
        id: String,
        verdict: DecisionRequest,
    },
    Reject {
        id: String,
        verdict: DecisionRequest,
    },
    /// Changes the payload of a job that waits for a decision.
    Repair {
        id: String,
        payload: Value,
        verdict: DecisionRequest,
    },
}

impl PlaneRequest {
    /// The action, as the rest of a sentence after "cannot".
    pub(crate) fn description(&self) -> String {
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

    /// A read can be repeated safely, so its timeout is never an unknown outcome.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Job { .. }
                | Self::Jobs { .. }
                | Self::Run { .. }
                | Self::Runs { .. }
                | Self::Approvals { .. }
        )
    }

    /// The grant that the daemon requires, in the form of `token new --grant`.
    pub(crate) fn required_grant(&self) -> String {
        let of = |kind: &str, id: Option<&String>| id.map_or(kind.to_owned(), |id| format!("{kind}:{id}"));
        match self {
            // A command runs with the rights of a replica, so it needs the admin role.
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
