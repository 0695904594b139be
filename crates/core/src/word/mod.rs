//! The words of the trade, each validated once and a type of its own from then on.

mod fence;
mod holder;
mod name;
mod token;
mod ttl;

pub use fence::Fence;
pub use holder::Holder;
pub use name::Name;
pub use token::{Token, fingerprint};
pub use ttl::Ttl;

/// Input that cannot be used: which field, what was given, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {given}: {allowed}")]
pub struct Invalid {
    /// The field as the caller knows it, e.g. `name` or `class.scheduler.ttl`.
    pub field: String,
    /// What was given, quoted and shortened.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
}

impl Invalid {
    /// `given` is quoted and cut to a length that fits a line.
    #[must_use]
    pub fn new(field: impl Into<String>, given: impl AsRef<str>, allowed: impl Into<String>) -> Self {
        let given = given.as_ref();
        let short: String = given.chars().take(60).collect();
        let mark = if short.len() < given.len() { "…" } else { "" };
        Self {
            field: field.into(),
            given: format!("{short:?}{mark}"),
            allowed: allowed.into(),
        }
    }
}

/// So that whatever takes something to be made a word also takes the word itself.
impl From<std::convert::Infallible> for Invalid {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
