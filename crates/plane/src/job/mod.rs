//! A job: what was asked for, and what became of it so far.
//!
//! `spec` is what callers say, `change` every step of a job's life as a pure function.

mod change;
mod spec;

use leasehold_core::{Fence, Invalid, Name};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use change::Change;
pub(crate) use change::{go, off};
pub use spec::{JobSpec, Work};

use crate::state::JobState;
use crate::store::Doc;

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Job {
    /// Its id.
    #[serde(skip)]
    pub id: String,
    /// Grows with each write; a writer that saw an older one is refused.
    #[serde(skip)]
    pub version: u64,
    /// Where it is in its life.
    #[serde(skip)]
    pub state: JobState,
    /// When it was submitted, in milliseconds of the store's clock.
    #[serde(skip)]
    pub created: u64,
    /// When it was last written.
    #[serde(skip)]
    pub updated: u64,
    /// When somebody should look at it.
    #[serde(skip)]
    pub due: Option<u64>,
    /// The store's clock when it was read.
    #[serde(skip)]
    pub now: u64,
    /// What was asked for.
    pub spec: JobSpec,
    /// How often it was handed over. Each hand-over has its own number, so none can be taken for another.
    pub attempt: u32,
    /// How many attempts failed by themselves.
    pub failures: u32,
    /// How many attempts were lost with their replica or worker.
    pub losses: u32,
    /// Who works on it.
    pub owner: Option<Owner>,
    /// What a person has decided.
    pub decision: Option<Decision>,
    /// How the last attempt ended.
    pub outcome: Option<Outcome>,
    /// Why it was given up.
    pub dead: Option<Dead>,
    /// The step of a workflow run that it is the work of.
    pub parent: Option<Parent>,
}

/// Who works on a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Owner {
    /// The replica, or the pull worker.
    pub who: String,
    /// The fence it began under; none if its hold was local only.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
}

/// What a person has decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decision {
    /// It may run.
    pub approved: bool,
    /// Who said so.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Outcome {
    /// Well, with this result.
    Done(Value),
    /// Not well, for this reason.
    Failed(String),
}

/// Why a job was given up: its dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Dead {
    /// The reason.
    pub reason: String,
    /// What it was doing.
    pub last_state: JobState,
    /// How often it was tried.
    pub attempts: u32,
}

/// The step of a run that a job is the work of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Parent {
    /// The run.
    pub run: String,
    /// Its step.
    pub step: String,
    /// Which attempt of the step: results of earlier ones are stale.
    pub attempt: u32,
}

impl Job {
    /// A new job.
    #[must_use]
    pub fn new(id: String, spec: JobSpec, parent: Option<Parent>) -> Self {
        let state = if spec.requires_approval || spec.work == Work::Gate {
            JobState::ApprovalRequired
        } else {
            JobState::Pending
        };
        Self {
            id,
            version: 0,
            state,
            created: 0,
            updated: 0,
            due: None,
            now: 0,
            spec,
            attempt: 0,
            failures: 0,
            losses: 0,
            owner: None,
            decision: None,
            outcome: None,
            dead: None,
            parent,
        }
    }

    /// The name of its lock.
    ///
    /// # Errors
    /// Its id cannot be part of a name.
    pub fn name(&self) -> Result<Name, Invalid> {
        lock_of(&self.id)
    }

    /// What a person approves: if this has changed, so has what was agreed to.
    #[must_use]
    pub fn snapshot(&self) -> String {
        let spec = serde_json::to_string(&self.spec).unwrap_or_default();
        let hash = Sha256::digest(spec.as_bytes());
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Milliseconds of the store's clock by which it must have ended.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let allowed = self.spec.deadline?;
        Some(crate::store::memory::later(self.created, allowed.0))
    }

    /// Its deadline has passed.
    #[must_use]
    pub fn late(&self) -> bool {
        self.deadline().is_some_and(|deadline| self.now >= deadline)
    }

    /// Reads a stored one.
    ///
    /// # Errors
    /// What is stored is not a job.
    pub fn read(doc: &Doc) -> Result<Self, Invalid> {
        let bad = |why: String| Invalid::new("job", doc.id.clone(), why);
        let mut job: Self = serde_json::from_str(&doc.body).map_err(|error| bad(error.to_string()))?;
        job.id.clone_from(&doc.id);
        job.version = doc.version;
        job.state = doc.state.parse()?;
        (job.created, job.updated, job.due, job.now) = (doc.created, doc.updated, doc.due, doc.now);
        Ok(job)
    }
}

/// The name of a job's lock.
///
/// # Errors
/// The id cannot be part of a name.
pub fn lock_of(id: &str) -> Result<Name, Invalid> {
    Name::new(&format!("job:{id}"))
}
