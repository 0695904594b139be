//! Errors of a store, classified by what the reader can do about them.

use std::error::Error;
use std::fmt;

/// Why a store call failed. Coarse on purpose: each kind names what its reader can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No connection: start the store, or repair the network path to it.
    Unreachable,
    /// No response within the timeout.
    TimedOut,
    /// The store runs but cannot serve now (loading, out of memory, too many clients, busy): reduce
    /// its load.
    Overloaded,
    /// The server is a replica or otherwise read-only: connect to the primary.
    ReadOnly,
    /// The server refuses these credentials or this user's rights: correct the configuration.
    Denied,
    /// The configuration cannot work, or the store does not keep what a class requires.
    Misconfigured,
    /// The store does not offer this operation.
    Unsupported,
    /// The stored data or the response is invalid: inspect the store before further use.
    Corrupt,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed out",
            Self::Overloaded => "overloaded",
            Self::ReadOnly => "read-only",
            Self::Denied => "access denied",
            Self::Misconfigured => "misconfigured",
            Self::Unsupported => "unsupported",
            Self::Corrupt => "corrupt",
        })
    }
}

/// A store call without a response. Every caller must check `unknown`: the call
/// may have taken effect.
#[derive(Debug)]
pub struct StoreError {
    /// The class of the failure; decides whether a retry can help.
    pub kind: StoreErrorKind,
    /// The call may have taken effect. Only a closed table of known errors clears this flag.
    pub unknown: bool,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// An error of a call that did not take effect and never will.
    #[must_use]
    pub fn not_done(cause: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind: cause, unknown: false, message: message.into(), source: None }
    }

    /// An error of a call that may have taken effect, or may still do so.
    #[must_use]
    pub fn unknown(cause: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind: cause, unknown: true, message: message.into(), source: None }
    }

    /// Attaches the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What happened, as text without secrets.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A retry may help: the failure concerns the connection or the store's state, not the request.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unreachable
                | StoreErrorKind::TimedOut
                | StoreErrorKind::Overloaded
                | StoreErrorKind::ReadOnly
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = if self.unknown { "it may have taken effect" } else { "nothing was changed" };
        write!(f, "{}: {} ({effect})", self.kind, self.message)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
