//! The job document: its specification and its progress so far.
//!
//! `spec` is what a caller submits; `change` has each step of a job's life as a pure function.

mod change;
mod spec;

use leasehold_core::{Fence, InvalidInput, Name};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use change::JobChange;
pub(crate) use change::{cancel_message, dispatch_message};
pub(crate) use spec::{
    DEFAULT_TENANT, MAX_STEP_ATTEMPTS, check_json_size, check_key, check_name, check_new_id,
    check_tenant_prefix, key_scope, step_job_id,
};
pub use spec::{JobSpec, Work, check_payload};

use crate::state::JobState;
use crate::store::Document;

/// One job. The fields without serialisation are columns of the store, not part of the body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Job {
    /// The job's id: the key of its document and part of its lock's name.
    #[serde(skip)]
    pub id: String,
    /// Grows with each write. A writer that read an older version is refused.
    #[serde(skip)]
    pub version: u64,
    /// The job's present state. Only a change that the transition table allows sets it.
    #[serde(skip)]
    pub state: JobState,
    /// When it was submitted, in milliseconds of the store's clock.
    #[serde(skip)]
    pub created: u64,
    /// When it was last written, by the same clock.
    #[serde(skip)]
    pub updated: u64,
    /// When the repair loops act on it, unless its state changes before.
    #[serde(skip)]
    pub due: Option<u64>,
    /// The store's clock when it was read. The other times are compared with this one only.
    #[serde(skip)]
    pub now: u64,
    /// What was submitted.
    pub spec: JobSpec,
    /// The principal that submitted it; none for jobs of versions before principals were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The principals that had it done again, by a retry of the job or a rerun of its run, the latest last.
    /// They may decide about it as little as its submitter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<String>,
    /// The principals that changed its payload. They may decide about it as little as its submitter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairers: Vec<String>,
    /// How often it was handed over. Each hand-over has its own number, so a late result cannot be mistaken.
    pub attempt: u32,
    /// How many attempts failed in their own work.
    pub failures: u32,
    /// How many attempts were lost because their replica or worker was.
    pub losses: u32,
    /// The replica or worker that works on it now.
    pub owner: Option<Owner>,
    /// The seal of the latest claim of a pull job. It stays after the end, for repeated results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub claim: Option<ClaimSeal>,
    /// The approval decision, if one was made.
    pub decision: Option<Decision>,
    /// The outcome of the last attempt.
    pub outcome: Option<Outcome>,
    /// Set when the job was given up.
    pub dead: Option<DeadLetter>,
    /// The workflow step that this job does, if it belongs to a run.
    pub parent: Option<Parent>,
}

/// The owner of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Owner {
    /// The name of the replica or pull worker.
    pub who: String,
    /// The fence under which it began; none if its hold was local-only.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
}

/// What a pull worker must present to use its claim. Views of a job leave it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClaimSeal {
    /// SHA-256 of the claim's secret, in hexadecimal.
    pub secret_sha256: String,
    /// The principal that claimed the job.
    pub principal: String,
}

impl ClaimSeal {
    /// The seal for a secret and the principal that receives it.
    #[must_use]
    pub fn new(secret: &str, principal: &str) -> Self {
        Self { secret_sha256: sha256_hex(secret), principal: principal.to_owned() }
    }

    /// Whether secret and principal are those of the claim.
    #[must_use]
    pub fn opens_with(&self, secret: &str, principal: &str) -> bool {
        let offered = sha256_hex(secret);
        let same_secret: bool = offered.as_bytes().ct_eq(self.secret_sha256.as_bytes()).into();
        same_secret && self.principal == principal
    }
}

fn sha256_hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An approval decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decision {
    /// True if the job may run.
    pub approved: bool,
    /// The person that decided.
    pub by: String,
    /// The reason that person gave.
    pub reason: String,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Outcome {
    /// The work succeeded with this result.
    Done(Value),
    /// The work failed for this reason.
    Failed(String),
}

/// The dead letter of a job that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Dead))]
pub struct DeadLetter {
    /// Why it was given up.
    pub reason: String,
    /// The state before it was given up.
    pub last_state: JobState,
    /// How often it was handed over.
    pub attempts: u32,
}

/// The step of a run that a job does. Only the engine makes jobs that have one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Parent {
    /// The run's id.
    pub run: String,
    /// The step's id.
    pub step: String,
    /// The attempt of the step. Results of earlier attempts are stale.
    pub attempt: u32,
}

impl Job {
    /// A new job, PENDING or waiting for approval.
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
            submitted_by: None,
            requesters: Vec::new(),
            repairers: Vec::new(),
            attempt: 0,
            failures: 0,
            losses: 0,
            owner: None,
            claim: None,
            decision: None,
            outcome: None,
            dead: None,
            parent,
        }
    }

    /// Whether the principal submitted it, started its run, had one of them done again, or changed its payload.
    #[must_use]
    pub fn is_requested_by(&self, principal: &str) -> bool {
        let mut all = self.submitted_by.iter().chain(&self.requesters).chain(&self.repairers);
        all.any(|requester| requester == principal)
    }

    /// The principal that requested it last.
    #[must_use]
    pub fn requester(&self) -> Option<&str> {
        self.requesters.last().or(self.submitted_by.as_ref()).map(String::as_str)
    }

    /// The name of the job's lock.
    ///
    /// # Errors
    /// The id cannot be part of a lock name.
    pub fn lock_name(&self) -> Result<Name, InvalidInput> {
        job_lock_name(&self.id)
    }

    /// The scope of its idempotency key; see [`JobSpec::key_scope`].
    #[must_use]
    pub fn key_scope(&self) -> &str {
        key_scope(&self.spec.tenant, Some(&self.id))
    }

    /// A hash of the specification. It changes when a repair changes what was to be approved.
    #[must_use]
    pub fn snapshot(&self) -> String {
        let spec = serde_json::to_string(&self.spec).unwrap_or_default();
        let hash = Sha256::digest(spec.as_bytes());
        // The first 64 bits: enough to detect a change; this is not a signature.
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The time by which it must have ended, in milliseconds of the store's clock.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let allowed = self.spec.deadline?;
        Some(crate::store::memory::add_to_millis(self.created, allowed.0))
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn is_past_deadline(&self) -> bool {
        self.deadline().is_some_and(|deadline| self.now >= deadline)
    }

    /// Reads a stored job.
    ///
    /// # Errors
    /// The stored document is not a job.
    pub fn read(doc: &Document) -> Result<Self, InvalidInput> {
        let bad = |why: String| InvalidInput::new("job", doc.id.clone(), why);
        let mut job: Self = serde_json::from_str(&doc.body).map_err(|error| bad(error.to_string()))?;
        job.id.clone_from(&doc.id);
        job.version = doc.version;
        job.state = doc.state.parse()?;
        (job.created, job.updated, job.due, job.now) = (doc.created, doc.updated, doc.due, doc.now);
        Ok(job)
    }
}

/// Adds a principal as the latest requester.
pub(crate) fn add_requester(requesters: &mut Vec<String>, principal: &str) {
    // Once each, so that the list is bounded by the number of principals.
    requesters.retain(|requester| requester != principal);
    requesters.push(principal.to_owned());
}

/// The name of a job's lock.
///
/// # Errors
/// The id cannot be part of a lock name.
pub fn job_lock_name(id: &str) -> Result<Name, InvalidInput> {
    Name::new(&format!("job:{id}"))
}
