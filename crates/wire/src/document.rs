use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::store::{Document, DocumentList, DocumentOutcome, DocumentRead, ExpectedVersion};
use leasehold_core::{InvalidInput, Name};
use serde::{Deserialize, Serialize};

use super::millis;

/// The largest version of a document: the largest whole number that JSON carries exactly everywhere.
const MAX_DOCUMENT_VERSION: u64 = (1 << 53) - 1;

/// A document of the daemon's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DocumentView {
    /// The name of the document.
    pub name: String,
    /// Greater with each write of this name.
    pub version: u64,
    /// The whole content, as text.
    pub value: String,
    /// The time until it expires; missing if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
}

impl DocumentView {
    /// The document of the store contract.
    ///
    /// # Errors
    /// The name is not a valid one.
    pub fn into_document(self) -> Result<Document, InvalidInput> {
        let name = Name::new(&self.name)?;
        let remaining = self.remaining_ms.map(Duration::from_millis);
        Ok(Document::new(name, self.version, self.value).with_remaining(remaining))
    }
}

impl From<Document> for DocumentView {
    fn from(document: Document) -> Self {
        Self {
            name: document.name.to_string(),
            version: document.version,
            value: document.value,
            remaining_ms: document.remaining.map(millis),
        }
    }
}

/// The response of `GET /v1/documents/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DocumentReadView {
    /// The document; missing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentView>,
    /// The store's clock at the read, in milliseconds since 1970. Times inside a document are compared
    /// with it.
    pub store_time_ms: u64,
}

impl From<DocumentRead> for DocumentReadView {
    fn from(read: DocumentRead) -> Self {
        let since = read.store_time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { document: read.document.map(DocumentView::from), store_time_ms: millis(since) }
    }
}

impl DocumentReadView {
    /// The response of the store contract.
    ///
    /// # Errors
    /// A name or the time is not a valid one.
    pub fn into_read(self) -> Result<DocumentRead, InvalidInput> {
        let time = UNIX_EPOCH.checked_add(Duration::from_millis(self.store_time_ms));
        let time: SystemTime = time.ok_or_else(|| {
            InvalidInput::new("store_time_ms", self.store_time_ms.to_string(), "is not a time")
        })?;
        Ok(DocumentRead::new(self.document.map(DocumentView::into_document).transpose()?, time))
    }
}

/// The response of `GET /v1/documents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DocumentListView {
    /// The documents, ordered by name.
    pub documents: Vec<DocumentView>,
    /// True if there are more; the next page begins with `after` set to the last name.
    pub truncated: bool,
}

impl DocumentListView {
    /// The page of the store contract.
    ///
    /// # Errors
    /// A name is not a valid one.
    pub fn into_list(self) -> Result<DocumentList, InvalidInput> {
        let documents = self.documents.into_iter().map(DocumentView::into_document);
        Ok(DocumentList::new(documents.collect::<Result<_, _>>()?, self.truncated))
    }
}

/// The body of `PUT /v1/documents/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DocumentPut {
    /// The whole new content, at most 65536 bytes.
    #[cfg_attr(feature = "schema", schema(max_length = 65_536))]
    pub value: String,
    /// Write only if the document has exactly this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 9_007_199_254_740_991_u64))]
    pub if_version: Option<u64>,
    /// Write only if there is no such document.
    #[serde(default)]
    pub if_absent: bool,
    /// The lifetime from now on; without one the document does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 31_622_400_000u64))]
    pub ttl_ms: Option<u64>,
}

/// The state that a change of a document expects, as two fields of a request.
///
/// # Errors
/// Both fields are set, or the version is too large.
pub fn expected_version(if_version: Option<u64>, if_absent: bool) -> Result<ExpectedVersion, InvalidInput> {
    match (if_version, if_absent) {
        (None, false) => Ok(ExpectedVersion::Any),
        (None, true) => Ok(ExpectedVersion::Absent),
        (Some(version), false) if version > MAX_DOCUMENT_VERSION => {
            let allowed = format!("must be at most {MAX_DOCUMENT_VERSION}");
            Err(InvalidInput::new("if_version", version.to_string(), allowed))
        }
        (Some(version), false) => Ok(ExpectedVersion::Exactly(version)),
        (Some(version), true) => {
            let allowed = "must not be combined with if_absent";
            Err(InvalidInput::new("if_version", version.to_string(), allowed))
        }
    }
}

/// The response to a change of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DocumentChangeView {
    /// False if the document was not in the expected state; then nothing changed.
    pub changed: bool,
    /// After a change: the version that was written, or that was deleted (0 if there was none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// If nothing changed: the document as it is; missing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<DocumentView>,
}

impl From<DocumentOutcome> for DocumentChangeView {
    fn from(outcome: DocumentOutcome) -> Self {
        match outcome {
            DocumentOutcome::Changed(version) => {
                Self { changed: true, version: Some(version), current: None }
            }
            DocumentOutcome::Conflict(current) => {
                Self { changed: false, version: None, current: current.map(DocumentView::from) }
            }
            // The enum is of another crate and may grow; what is not known has changed nothing.
            _ => Self { changed: false, version: None, current: None },
        }
    }
}

impl DocumentChangeView {
    /// The outcome of the store contract.
    ///
    /// # Errors
    /// A name is not a valid one, or a change has no version.
    pub fn into_outcome(self) -> Result<DocumentOutcome, InvalidInput> {
        if !self.changed {
            let current = self.current.map(DocumentView::into_document).transpose()?;
            return Ok(DocumentOutcome::Conflict(current));
        }
        let missing = || InvalidInput::new("version", "", "must be there after a change");
        Ok(DocumentOutcome::Changed(self.version.ok_or_else(missing)?))
    }
}
