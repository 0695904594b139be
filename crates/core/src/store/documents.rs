//! Small named records beside the leases: what the processes of a fleet must agree on.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::{StoreError, StoreErrorKind, WakeListener};
use crate::types::Name;

/// The largest value of a document, in bytes. Each follower reads the whole value after each change.
pub const MAX_DOCUMENT_BYTES: usize = 64 * 1024;

/// The longest lifetime of a document that expires.
pub const MAX_DOCUMENT_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The most documents that one listing returns.
pub const MAX_DOCUMENTS_LISTED: usize = 1000;

/// A document as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// Its name, unique among the documents of a store. Leases and documents do not share names.
    pub name: Name,
    /// Greater with each write of this name, also after the document was deleted or expired.
    pub version: u64,
    /// The whole content, as text.
    pub value: String,
    /// The time until it expires, by the store's clock; `None` if it does not expire.
    pub remaining: Option<Duration>,
}

impl Document {
    /// A document that does not expire.
    #[must_use]
    pub const fn new(name: Name, version: u64, value: String) -> Self {
        Self { name, version, value, remaining: None }
    }

    /// Sets the time until it expires.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }
}

/// The response to a read: the document, if it exists, and the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentRead {
    /// `None` if there is no such document, or it has expired.
    pub document: Option<Document>,
    /// The store's wall clock at the read. Times inside a document are compared with it, so that the
    /// clocks of the processes need not agree.
    pub store_time: SystemTime,
}

impl DocumentRead {
    /// The response of a store.
    #[must_use]
    pub const fn new(document: Option<Document>, store_time: SystemTime) -> Self {
        Self { document, store_time }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentList {
    /// The documents in byte order of their names.
    pub documents: Vec<Document>,
    /// There are more: the next page starts after the last name of this one.
    pub truncated: bool,
}

impl DocumentList {
    /// A page of a listing.
    #[must_use]
    pub const fn new(documents: Vec<Document>, truncated: bool) -> Self {
        Self { documents, truncated }
    }
}

/// Which documents to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentQuery {
    /// The start of the names, as text and not as a pattern.
    pub prefix: String,
    /// Only names that are greater than this one, in byte order.
    pub after: Option<Name>,
    /// How many at most, 1 to [`MAX_DOCUMENTS_LISTED`].
    pub limit: usize,
}

impl DocumentQuery {
    /// The first page of the documents whose names start with `prefix`.
    #[must_use]
    pub fn new(prefix: impl Into<String>, limit: usize) -> Self {
        Self { prefix: prefix.into(), after: None, limit }
    }

    /// The page after this name.
    #[must_use]
    pub fn after(mut self, name: Name) -> Self {
        self.after = Some(name);
        self
    }

    /// Refuses a limit outside of its bounds. Every store calls this first.
    ///
    /// # Errors
    /// The limit is zero or too large.
    pub fn check(&self) -> Result<(), StoreError> {
        if (1..=MAX_DOCUMENTS_LISTED).contains(&self.limit) {
            return Ok(());
        }
        Err(refuse(format!("limit: {} is not between 1 and {MAX_DOCUMENTS_LISTED}", self.limit)))
    }
}

/// The state in which a document must be for a change of it to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedVersion {
    /// Whether it exists or not.
    Any,
    /// It does not exist.
    Absent,
    /// It exists with exactly this version.
    Exactly(u64),
}

impl ExpectedVersion {
    /// Returns true if a document with this version (`None`: no document) may be changed.
    #[must_use]
    pub fn allows(self, current: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Exactly(version) => current == Some(version),
        }
    }
}

/// A request to create or replace a document.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentWrite {
    /// The document to write.
    pub name: Name,
    /// The whole new content.
    pub value: String,
    /// What must be there.
    pub expected: ExpectedVersion,
    /// The lifetime from now on; without one the document does not expire.
    pub ttl: Option<Duration>,
}

impl DocumentWrite {
    /// Creates the document or replaces it, whatever is there, without an expiry.
    #[must_use]
    pub fn new(name: Name, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), expected: ExpectedVersion::Any, ttl: None }
    }

    /// Writes only if the document is in this state.
    #[must_use]
    pub const fn expecting(mut self, expected: ExpectedVersion) -> Self {
        self.expected = expected;
        self
    }

    /// Lets the document expire this long after the write.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Refuses a value or a lifetime outside of its bounds. Every store calls this first.
    ///
    /// # Errors
    /// The message names the field and what is allowed.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.value.len() > MAX_DOCUMENT_BYTES {
            let bytes = self.value.len();
            return Err(refuse(format!(
                "value: is {bytes} bytes long; at most {MAX_DOCUMENT_BYTES} are allowed"
            )));
        }
        // Stores count milliseconds; a shorter lifetime would end at once.
        let bounds = Duration::from_millis(1)..=MAX_DOCUMENT_TTL;
        if self.ttl.is_some_and(|ttl| !bounds.contains(&ttl)) {
            return Err(refuse("ttl: must be between 1 ms and 366 days".to_owned()));
        }
        Ok(())
    }
}

impl fmt::Debug for DocumentWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be long, and it is data of users.
        f.debug_struct("DocumentWrite")
            .field("name", &self.name)
            .field("bytes", &self.value.len())
            .field("expected", &self.expected)
            .field("ttl", &self.ttl)
            .finish()
    }
}

fn refuse(message: String) -> StoreError {
    StoreError::not_done(StoreErrorKind::Misconfigured, message)
}

/// The response to a write or a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum DocumentOutcome {
    /// The change was made. After a write: the document's version; after a deletion: the version of
    /// the deleted document, or 0 if there was none.
    Changed(u64),
    /// The document was not in the expected state and nothing changed. Contains the current
    /// document. A caller that repeats a write whose reply was lost recognizes its own value here.
    Conflict(Option<Document>),
}

/// The documents of a store. Each operation is one atomic step. Errors mean the same as those of a
/// [`Store`](super::Store): a failed write may have taken effect only if its error says so.
#[async_trait]
pub trait Documents: Send + Sync + fmt::Debug {
    /// Reads one document. Sees every change that was confirmed before the call.
    async fn read(&self, name: &Name, within: Duration) -> Result<DocumentRead, StoreError>;

    /// Lists live documents in byte order of their names.
    async fn list(&self, query: &DocumentQuery, within: Duration) -> Result<DocumentList, StoreError>;

    /// Creates or replaces a document if it is in the expected state.
    ///
    /// The new version is greater than every version that this name ever had, unless the store lost
    /// its data and its clock went back.
    async fn write(&self, request: &DocumentWrite, within: Duration) -> Result<DocumentOutcome, StoreError>;

    /// Deletes a document if it is in the expected state.
    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        within: Duration,
    ) -> Result<DocumentOutcome, StoreError>;

    /// Subscribes to changes of one document. A wake-up means "read again"; some may be lost or come
    /// without a change. A caller that must not miss a change also reads from time to time.
    fn watch(&self, name: &Name) -> WakeListener {
        let _ = name;
        WakeListener::never()
    }
}
