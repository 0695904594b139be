//! Validated value types. Each is checked once, when it is made.

mod fence;
mod holder;
mod invisible;
mod name;
mod name_set;
mod token;
mod ttl;

pub use fence::Fence;
pub use holder::Holder;
pub use invisible::is_invisible;
pub use name::Name;
pub use name_set::NameSet;
pub use token::{Token, fingerprint};
pub use ttl::Ttl;

/// Invalid input: the field, the given value, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {given}: {allowed}")]
#[non_exhaustive]
pub struct InvalidInput {
    /// The field under the name that the caller uses, e.g. `name` or `class.scheduler.ttl`.
    pub field: String,
    /// The given value, quoted and shortened, or a phrase such as `is missing`.
    pub given: String,
    /// The allowed values, or the reason for the refusal, for the error message.
    pub allowed: String,
}

impl InvalidInput {
    /// An error about `given`, which is quoted and cut to 60 characters.
    #[must_use]
    pub fn new(field: impl Into<String>, given: impl AsRef<str>, allowed: impl Into<String>) -> Self {
        let given = given.as_ref();
        // Errors end up in logs and terminals: a value of a megabyte must not.
        let short: String = given.chars().take(60).collect();
        let mark = if short.len() < given.len() { "…" } else { "" };
        Self { field: field.into(), given: format!("{short:?}{mark}"), allowed: allowed.into() }
    }
}

// Lets functions take `impl TryInto<Name>` and accept a `Name` itself, whose conversion cannot
// fail.
impl From<std::convert::Infallible> for InvalidInput {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
