//! Queries for documents: which ones, in what order, and page by page.

use super::{Document, DocumentKind};

/// A query for documents, ordered by due time, earliest first.
#[derive(Debug, Clone)]
pub struct DocumentQuery {
    /// Only documents of this kind.
    pub kind: DocumentKind,
    /// Only documents in one of these states.
    pub states: Vec<&'static str>,
    /// Only documents whose due time has passed.
    pub due_only: bool,
    /// Only documents with this index key.
    pub index_key: Option<String>,
    /// Only documents of this owner.
    pub owner: Option<String>,
    /// Only documents of this scope.
    pub scope: Option<DocumentScope>,
    /// Only documents after this position: the next page.
    pub after: Option<DocumentPosition>,
    /// The most documents to return.
    pub limit: usize,
}

impl DocumentQuery {
    /// The documents of a kind in these states, whatever else they have.
    pub fn new(kind: DocumentKind, states: impl IntoIterator<Item = &'static str>, limit: usize) -> Self {
        Self {
            kind,
            states: states.into_iter().collect(),
            due_only: false,
            index_key: None,
            owner: None,
            scope: None,
            after: None,
            limit,
        }
    }
}

/// The documents that a caller with limited rights may see: by the beginning of their id, or of their index
/// key. Beginnings end where a segment ends: `acme` stands for `acme` and `acme:1`, not for `acme2`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DocumentScope {
    /// The beginnings of ids.
    pub ids: Vec<String>,
    /// The beginnings of index keys.
    pub index_keys: Vec<String>,
}

impl DocumentScope {
    /// Whether a document with this id and index key is in the scope.
    #[must_use]
    pub fn contains(&self, id: &str, index_key: &str) -> bool {
        let begins = |text: &str, beginning: &String| {
            let rest = text.strip_prefix(beginning.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        self.ids.iter().any(|beginning| begins(id, beginning))
            || self.index_keys.iter().any(|beginning| begins(index_key, beginning))
    }
}

/// A place in the order of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPosition {
    /// The due time there, in milliseconds of the store's clock; `None` sorts last.
    pub due: Option<u64>,
    /// The id there.
    pub id: String,
}

impl DocumentPosition {
    /// The position of a document.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        Self { due: document.due, id: document.id.clone() }
    }
}

/// A part of the documents that match a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPage<T = Document> {
    /// The documents, the earliest due time first.
    pub documents: Vec<T>,
    /// Where to go on, if there may be more. A page with few documents or none can have it too: a store may
    /// stop its search.
    pub next: Option<DocumentPosition>,
}

impl DocumentPage {
    /// A page of at most `limit` documents, from one more than that.
    pub(crate) fn cut(mut documents: Vec<Document>, limit: usize) -> Self {
        let more = documents.len() > limit;
        documents.truncate(limit);
        let next = documents.last().filter(|_| more).map(DocumentPosition::of);
        Self { documents, next }
    }

    /// The same page with its documents read.
    ///
    /// # Errors
    /// A document cannot be read.
    pub(crate) fn try_map<T, E>(
        self,
        read: impl Fn(&Document) -> Result<T, E>,
    ) -> Result<DocumentPage<T>, E> {
        let documents = self.documents.iter().map(read).collect::<Result<_, _>>()?;
        Ok(DocumentPage { documents, next: self.next })
    }
}
