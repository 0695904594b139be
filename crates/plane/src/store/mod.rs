//! The store of the plane: documents, their events, and message queues.
//!
//! A store executes one call at a time; it does not retry, wait or decide. Every change is one
//! conditional step ([`PlaneStore::write`]) that checks, inside the store:
//!
//! - this write has not been applied before,
//! - the caller's fence is not stale,
//! - the document has the version that the caller read,
//! - its state may become the new one,
//! - the idempotency key is free.
//!
//! The same step appends the event, creates further documents and sends messages: all of it or nothing.
//!
//! Times are the store's own: replicas send durations (*in 30 seconds*), never points in time, so their
//! clocks are never compared (ADR 0012).

mod document_key;
pub mod memory;
mod owned;
mod query;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod write_rule;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::StoreError;
use leasehold_core::{Fence, Name};

pub use document_key::DocumentKey;
pub(crate) use document_key::{KeySpace, document_scope};
pub(crate) use owned::{is_ended_job_of, step_jobs};
pub use query::{DocumentPage, DocumentPosition, DocumentQuery, DocumentScope};
pub(crate) use write_rule::{CurrentDocument, check_write};

/// How many of a document's first events are kept. `plane.lua` has the same numbers.
pub(crate) const KEPT_FIRST_EVENTS: u64 = 100;
/// How many of a document's newest events are kept.
pub(crate) const KEPT_NEWEST_EVENTS: u64 = 400;

/// The kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DocumentKind {
    /// A job, written by schedulers, approvals and pull workers.
    Job,
    /// A workflow run, written by the engine.
    Run,
    /// A workflow's definition, written by clients.
    Workflow,
    /// A request to cancel a job whose lock another replica holds.
    CancelRequest,
}

impl DocumentKind {
    /// The kind's name, as stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Run => "run",
            Self::Workflow => "workflow",
            Self::CancelRequest => "signal",
        }
    }

    /// What a quota of this kind counts.
    const fn counted_as(self) -> &'static str {
        match self {
            Self::Job => "jobs that have not ended",
            Self::Run => "runs that have not ended",
            Self::Workflow => "workflows",
            Self::CancelRequest => "cancel requests",
        }
    }
}

/// The next revision of a document: its content after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// The document's kind.
    pub kind: DocumentKind,
    /// The document's id, unique within its kind.
    pub id: String,
    /// The state after the write.
    pub state: &'static str,
    /// Time until the document is due for the repair loops; `None` if never.
    pub due_in: Option<Duration>,
    /// A second search key besides the state: a job's topic, a run's organisation.
    pub index_key: String,
    /// The principal whose quota it counts against; empty if none.
    pub owner: String,
    /// The idempotency key of a new document.
    pub key: Option<DocumentKey>,
    /// The remaining fields, as JSON; opaque to the store.
    pub body: String,
    /// The event of this write, as JSON.
    pub event: String,
}

/// One conditional write.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// Identifies this write: a repetition changes nothing and gets the response of the first.
    pub id: String,
    /// The new content of the document.
    pub revision: Revision,
    /// The version that the caller read; `None` for a document that must not exist yet.
    pub expected_version: Option<u64>,
    /// The states from which this write is allowed.
    pub allowed_states: Vec<&'static str>,
    /// For a new document: how many its owner may have.
    pub quota: Option<OwnerQuota>,
    /// The lock that the caller holds, and its fence; `None` for a local-only hold or a new document.
    pub fence: Option<(Name, Fence)>,
    /// Documents that are created in the same step, unless they exist already.
    pub new_documents: Vec<Revision>,
    /// Messages that are sent in the same step.
    pub messages: Vec<Message>,
    /// Only the due time changes, under the same conditions: no new version, no event, nothing further.
    /// A repetition does the same again.
    pub only_due_time: bool,
}

impl WriteRequest {
    /// Creates a document. Nothing else happens in the same step.
    #[must_use]
    pub fn new(id: String, revision: Revision) -> Self {
        Self {
            id,
            revision,
            expected_version: None,
            allowed_states: Vec::new(),
            quota: None,
            fence: None,
            new_documents: Vec::new(),
            messages: Vec::new(),
            only_due_time: false,
        }
    }
}

/// How many documents of one kind an owner may have. Counted in the step that adds one, so that several
/// daemons on one store share the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerQuota {
    /// The states that count.
    pub states: Vec<&'static str>,
    /// The most documents in these states.
    pub limit: u64,
    /// What is kept of those that have ended; `None`: everything, for the retention time.
    pub kept_ended: Option<KeptEnded>,
}

/// How many ended documents of one kind an owner may have. Each step that adds a document deletes the oldest ended
/// ones beyond that, as [`PlaneStore::purge`] does; so their number is bounded without a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEnded {
    /// The states of documents that have ended.
    pub states: Vec<&'static str>,
    /// The most documents in these states.
    pub limit: u64,
}

/// How many ended documents one write deletes at most. It adds one, so two are enough for the number to shrink.
pub(crate) const MAX_DELETED_PER_WRITE: u64 = 2;

/// The response to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResponse {
    /// The write was applied, now or when it was first sent.
    Applied {
        /// The document's version after the write.
        version: u64,
        /// This is a repetition of a write that was applied before.
        repeated: bool,
        /// The ids of further documents that existed already.
        already_existing: Vec<String>,
    },
    /// The write was not applied, and never will be.
    Refused(WriteRefusal),
}

/// Why a write was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteRefusal {
    /// An owner with a newer fence has written.
    #[error("the fence {offered} is stale: {newest} has written since")]
    StaleFence {
        /// The fence of this write.
        offered: Fence,
        /// The newest fence that has written.
        newest: Fence,
        /// The document's state, if it exists.
        state: Option<String>,
    },
    /// Another writer has changed the document since it was read.
    #[error("it has version {found} by now and is {state}")]
    VersionMismatch {
        /// The document's present version.
        found: u64,
        /// The document's present state.
        state: String,
    },
    /// The transition table does not allow the new state.
    #[error("{state} cannot become {to}")]
    ForbiddenTransition {
        /// The document's present state.
        state: String,
        /// The state that the write wanted.
        to: &'static str,
    },
    /// The document does not exist.
    #[error("there is no such document")]
    Missing,
    /// A document with this id exists already.
    #[error("it is there already")]
    Exists,
    /// The idempotency key belongs to another document.
    #[error("the idempotency key was used for {id}")]
    KeyInUse {
        /// The id of that document.
        id: String,
    },
    /// The owner has as many documents of this kind as it may have.
    #[error("you have {limit} {}, as many as one identity may have", kind.counted_as())]
    QuotaReached {
        /// The kind of the document.
        kind: DocumentKind,
        /// The most documents that the owner may have.
        limit: u64,
    },
}

impl WriteRefusal {
    /// The state in which the store found the document, if the refusal carries it.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::StaleFence { state, .. } => state.as_deref(),
            Self::VersionMismatch { state, .. } | Self::ForbiddenTransition { state, .. } => Some(state),
            // These refusals concern a document that does not exist or another one.
            Self::Missing | Self::Exists | Self::KeyInUse { .. } | Self::QuotaReached { .. } => None,
        }
    }
}

/// A document as read from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The document's id.
    pub id: String,
    /// Grows by one with each write.
    pub version: u64,
    /// The state, as a stored name.
    pub state: String,
    /// When it is due for the repair loops, in milliseconds of the store's clock.
    pub due: Option<u64>,
    /// When it was created, in milliseconds of the store's clock.
    pub created: u64,
    /// When it was last written, in milliseconds of the store's clock.
    pub updated: u64,
    /// The remaining fields, as JSON.
    pub body: String,
    /// The store's clock at the read; the other times are compared with this one only.
    pub now: u64,
}

/// One event in a document's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentEvent {
    /// The document's version after the write.
    pub version: u64,
    /// The time of the write, in milliseconds of the store's clock.
    pub at: u64,
    /// The event itself, as JSON.
    pub body: String,
}

/// A message to be sent. It is delivered until a receiver acknowledges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The queue it is sent to.
    pub queue: Queue,
    /// Unique within its queue: a message whose id is queued already is not sent again.
    pub id: String,
    /// The id of the job or run that the message is about.
    pub document_id: String,
    /// The instruction, as JSON.
    pub body: String,
    /// The message is not delivered before this time has passed.
    pub due_in: Duration,
}

/// The message queues, one per reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// Read by the scheduler.
    Jobs,
    /// Read by the workflow engine.
    Runs,
}

impl Queue {
    /// The queue's name, as stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Runs => "runs",
        }
    }
}

/// A message as delivered to one receiver, hidden from the others for the visibility timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The queue it came from.
    pub queue: Queue,
    /// The message's id.
    pub id: String,
    /// The id of the job or run that the message is about.
    pub document_id: String,
    /// The instruction, as JSON.
    pub body: String,
    /// How often it was delivered. Only the latest receiver may settle it.
    pub tries: u64,
}

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The message is done and removed.
    Ack,
    /// The message is delivered again after this time.
    Redeliver(Duration),
}

/// A store that can hold a plane.
#[async_trait]
pub trait PlaneStore: Send + Sync + fmt::Debug + 'static {
    /// Reads one document.
    async fn read(&self, kind: DocumentKind, id: &str) -> Result<Option<Document>, StoreError>;

    /// Applies one write if all its conditions hold.
    async fn write(&self, write: &WriteRequest) -> Result<WriteResponse, StoreError>;

    /// Returns a page of the documents that match a query.
    async fn page(&self, query: &DocumentQuery) -> Result<DocumentPage, StoreError>;

    /// Lists the documents that match a query: the first page.
    async fn list(&self, query: &DocumentQuery) -> Result<Vec<Document>, StoreError> {
        Ok(self.page(query).await?.documents)
    }

    /// Counts the documents that match a query. Ignores its `due` condition, scope, position and limit.
    async fn count(&self, query: &DocumentQuery) -> Result<u64, StoreError>;

    /// The id of the document that was created with an idempotency key. An entry of an earlier version counts
    /// if its document has the key's scope, here and in a write alike.
    async fn find_id_by_key(
        &self,
        kind: DocumentKind,
        key: &DocumentKey,
    ) -> Result<Option<String>, StoreError>;

    /// The events of a document, oldest first. Of a long history the first 100 and the newest 400 are kept;
    /// the versions show how many are missing between them.
    async fn history(&self, kind: DocumentKind, id: &str) -> Result<Vec<DocumentEvent>, StoreError>;

    /// Receives up to `limit` due messages. Unless settled, they are delivered again after the visibility
    /// timeout.
    async fn receive(
        &self,
        queue: Queue,
        limit: usize,
        visible: Duration,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// Sends a message on its own. `false`: a message with this id is queued or delivered already, and stays
    /// unchanged.
    async fn send(&self, message: &Message) -> Result<bool, StoreError>;

    /// Settles a delivery. `false`: the message was delivered to another receiver since, or is gone; nothing
    /// changed.
    async fn settle(&self, taken: &Delivery, settle: Disposition) -> Result<bool, StoreError>;

    /// Deletes documents in these states that were last written longer than `keep` ago, with their events. A run
    /// takes the ended jobs of its steps with it, and a job its cancel request. Returns how many, without these.
    async fn purge(
        &self,
        kind: DocumentKind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, StoreError>;
}

/// A store shared by all parts of a replica.
pub type SharedPlaneStore = Arc<dyn PlaneStore>;
