//! Idempotency keys as the stores keep them: in spaces that cannot be mistaken for one another.
//!
//! Earlier versions kept all keys in one space without a scope, so one tenant's key could name another
//! tenant's job. Their entries are still read, but match only a document of the same scope.

use serde_json::Value;

use super::DocumentKind;
use crate::job::key_scope;

/// The idempotency key of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentKey {
    space: KeySpace,
    text: String,
    earlier: Option<UnscopedKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeySpace {
    /// Keys of earlier versions, of callers and of the plane alike.
    Unscoped,
    /// Keys of callers, with their scope.
    Scoped,
    /// Keys that the plane makes itself. No caller's key is ever looked up here.
    Engine,
}

/// The entry that an earlier version would have made for the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnscopedKey {
    pub(crate) text: String,
    /// The scope that the entry's document must have to match.
    pub(crate) scope: String,
}

impl DocumentKey {
    /// A caller's key, which counts within its scope only.
    #[must_use]
    pub fn scoped(scope: &str, key: &str) -> Self {
        // The length makes the text unambiguous: scopes and keys may both contain `:`.
        Self::new(KeySpace::Scoped, format!("{}:{scope}:{key}", scope.len()), scope, key)
    }

    /// A key that the plane makes itself. `scope` is that of the document which an earlier version would
    /// have made with it.
    #[must_use]
    pub fn engine(scope: &str, key: &str) -> Self {
        Self::new(KeySpace::Engine, key.to_owned(), scope, key)
    }

    /// A key as earlier versions stored it, for tests of stores that such a version has written.
    #[must_use]
    pub fn unscoped(key: &str) -> Self {
        Self { space: KeySpace::Unscoped, text: key.to_owned(), earlier: None }
    }

    fn new(space: KeySpace, text: String, scope: &str, key: &str) -> Self {
        let earlier = UnscopedKey { text: key.to_owned(), scope: scope.to_owned() };
        Self { space, text, earlier: Some(earlier) }
    }

    pub(crate) fn space(&self) -> KeySpace {
        self.space
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn earlier(&self) -> Option<&UnscopedKey> {
        self.earlier.as_ref()
    }
}

impl KeySpace {
    #[cfg(feature = "sqlite")]
    pub(crate) const ALL: [Self; 3] = [Self::Unscoped, Self::Scoped, Self::Engine];

    /// The name of the space for one kind of documents, as stored.
    #[cfg(any(feature = "sqlite", feature = "redis"))]
    pub(crate) fn name(self, kind: DocumentKind) -> String {
        let kind = kind.as_str();
        match self {
            Self::Unscoped => kind.to_owned(),
            Self::Scoped => format!("{kind}/scoped"),
            Self::Engine => format!("{kind}/engine"),
        }
    }
}

/// The scope of a stored document. `plane.lua` repeats this rule.
pub(crate) fn document_scope(kind: DocumentKind, id: &str, body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let tenant = match kind {
        DocumentKind::Run => &body["org"],
        _ => &body["spec"]["tenant"],
    };
    key_scope(tenant.as_str().unwrap_or_default(), Some(id)).to_owned()
}
