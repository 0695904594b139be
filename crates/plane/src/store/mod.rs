//! Where the plane's truth is kept: documents, their events, and mail.
//!
//! A store answers one question at a time; it does not retry, wait or decide. Every change is one conditional step
//! ([`PlaneStore::write`]) that checks, where the data lives: this very write has not been applied before, the
//! caller's fence is not stale, the document has the version the caller saw, its state may become the new one, and
//! the idempotency key is free. The same step appends the event, creates further documents and sends mail: all of it
//! happens, or nothing.
//!
//! Times are the store's own: replicas say *in 30 seconds*, never *at nine o'clock*, so their clocks are never
//! compared (ADR 0012).

pub mod memory;
pub mod redis;
mod rule;
pub mod sqlite;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::Failure;
use leasehold_core::{Fence, Name};

pub(crate) use rule::{Found, judge};

/// What kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A job.
    Job,
    /// A workflow run.
    Run,
    /// A workflow's definition.
    Workflow,
    /// A wish about a job whose lock someone else holds, e.g. to cancel it.
    Signal,
}

impl Kind {
    /// As it is stored.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Run => "run",
            Self::Workflow => "workflow",
            Self::Signal => "signal",
        }
    }
}

/// What a document is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Its id, unique in its kind.
    pub id: String,
    /// Its state from now on.
    pub state: &'static str,
    /// When somebody should look at it if nothing else happens.
    pub due_in: Option<Duration>,
    /// What it can be found by besides its state: a job's topic, a run's organisation.
    pub shelf: String,
    /// The idempotency key that brought it, for a new one.
    pub key: Option<String>,
    /// Everything else, as JSON.
    pub body: String,
    /// What happened to it, as JSON: one event for each write.
    pub event: String,
}

/// One conditional step.
#[derive(Debug, Clone)]
pub struct Write {
    /// Tells this write from every other: a repetition changes nothing and is answered like the first time.
    pub id: String,
    /// What the document becomes.
    pub entry: Entry,
    /// The version that the caller saw; `None` for a document that must not be there yet.
    pub expect: Option<u64>,
    /// States it may be in before.
    pub from: Vec<&'static str>,
    /// The lock that the caller holds, and its fence; `None` for a local-only hold.
    pub fence: Option<(Name, Fence)>,
    /// Documents that are made in the same step, unless they are there already.
    pub also: Vec<Entry>,
    /// Mail that is sent in the same step.
    pub send: Vec<Mail>,
}

/// What came of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It was applied, now or when it was first sent.
    Done {
        /// The document's version after it.
        version: u64,
        /// It had been applied before.
        repeated: bool,
        /// Which of the further documents were there already.
        skipped: Vec<String>,
    },
    /// It was not applied, and never will be.
    Refused(Refusal),
}

/// Why a write was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A newer owner has written.
    #[error("the fence {offered} is stale: {newest} has written since")]
    Stale {
        /// The caller's.
        offered: Fence,
        /// The newest.
        newest: Fence,
        /// The document's state, if it is there.
        state: Option<String>,
    },
    /// Someone else has changed it since it was read.
    #[error("it has version {found} by now and is {state}")]
    Version {
        /// Its version.
        found: u64,
        /// Its state.
        state: String,
    },
    /// Its state cannot become the new one.
    #[error("{state} cannot become {to}")]
    Transition {
        /// Its state.
        state: String,
        /// What was wanted.
        to: &'static str,
    },
    /// There is none.
    #[error("there is no such document")]
    Missing,
    /// It is there already.
    #[error("it is there already")]
    Exists,
    /// The idempotency key has brought another one already.
    #[error("the idempotency key was used for {id}")]
    Key {
        /// Which.
        id: String,
    },
}

impl Refusal {
    /// The state that the document was found in.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Stale { state, .. } => state.as_deref(),
            Self::Version { state, .. } | Self::Transition { state, .. } => Some(state),
            Self::Missing | Self::Exists | Self::Key { .. } => None,
        }
    }
}

/// A document as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doc {
    /// Its id.
    pub id: String,
    /// Grows by one with each write.
    pub version: u64,
    /// Its state.
    pub state: String,
    /// When somebody should look at it, in milliseconds of the store's clock.
    pub due: Option<u64>,
    /// When it was made, in milliseconds of the store's clock.
    pub created: u64,
    /// When it was last written, in milliseconds of the store's clock.
    pub updated: u64,
    /// Everything else, as JSON.
    pub body: String,
    /// The store's clock when it was read.
    pub now: u64,
}

/// Which documents are wanted: those most urgently due first.
#[derive(Debug, Clone)]
pub struct Query {
    /// Their kind.
    pub kind: Kind,
    /// Their states.
    pub states: Vec<&'static str>,
    /// Only those that are due.
    pub due: bool,
    /// Only those of this shelf.
    pub shelf: Option<String>,
    /// At most this many.
    pub limit: usize,
}

/// One event of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The document's version after it.
    pub version: u64,
    /// When, in milliseconds of the store's clock.
    pub at: u64,
    /// What, as JSON.
    pub body: String,
}

/// A message that is delivered until someone acknowledges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Which queue.
    pub queue: Queue,
    /// Unique in its queue: what is already waiting there is not sent twice.
    pub id: String,
    /// For which document.
    pub to: String,
    /// What is to be done, as JSON.
    pub body: String,
    /// Not before.
    pub due_in: Duration,
}

/// Who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// The scheduler.
    Jobs,
    /// The workflow engine.
    Runs,
}

impl Queue {
    /// As it is stored.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Runs => "runs",
        }
    }
}

/// Mail that was delivered to us, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Which queue.
    pub queue: Queue,
    /// Its id.
    pub id: String,
    /// For which document.
    pub to: String,
    /// What is to be done, as JSON.
    pub body: String,
    /// How often it was delivered. Only the latest taker may settle it.
    pub tries: u64,
}

/// What becomes of taken mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// It is done with.
    Ack,
    /// It is delivered again after this time.
    Again(Duration),
}

/// The engine under the plane.
#[async_trait]
pub trait PlaneStore: Send + Sync + fmt::Debug + 'static {
    /// Reads one document.
    async fn read(&self, kind: Kind, id: &str) -> Result<Option<Doc>, Failure>;

    /// Changes one document, if everything that the write names is as it says.
    async fn write(&self, write: &Write) -> Result<Written, Failure>;

    /// Looks for documents.
    async fn list(&self, query: &Query) -> Result<Vec<Doc>, Failure>;

    /// Counts documents, due or not.
    async fn count(&self, query: &Query) -> Result<u64, Failure>;

    /// The document brought by an idempotency key.
    async fn by_key(&self, kind: Kind, key: &str) -> Result<Option<String>, Failure>;

    /// The events of a document, oldest first.
    async fn history(&self, kind: Kind, id: &str) -> Result<Vec<Event>, Failure>;

    /// Delivers up to `limit` messages that are due; unless settled, they are delivered again after `visible`.
    async fn take(&self, queue: Queue, limit: usize, visible: Duration) -> Result<Vec<Taken>, Failure>;

    /// Sends mail by itself. `false`: mail with this id is there already, waiting or taken, and stays as it is.
    async fn send(&self, mail: &Mail) -> Result<bool, Failure>;

    /// Settles mail. `false`: it was delivered to someone else since, or is gone; nothing was changed.
    async fn settle(&self, taken: &Taken, settle: Settle) -> Result<bool, Failure>;

    /// Forgets documents in these states that were last written longer than `keep` ago, with their events. Answers
    /// how many.
    async fn purge(
        &self,
        kind: Kind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, Failure>;
}

/// A store that everything shares.
pub type SharedPlaneStore = Arc<dyn PlaneStore>;
