use std::error::Error;
use std::fmt;

/// Why a store could not answer. Coarse on purpose: each says what its reader can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// No connection: start the store, or mend the way to it.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// It is there but cannot serve now (loading, out of memory, too many clients, busy): lighten its load.
    Overloaded,
    /// It is a replica or otherwise read-only: ask the primary.
    ReadOnly,
    /// It refuses these credentials or this user's rights: mend the configuration.
    Denied,
    /// It is set up in a way that cannot work, or it does not keep what a class requires.
    Misconfigured,
    /// It cannot do this at all.
    Unsupported,
    /// What it keeps or answered makes no sense: look before using it further.
    Corrupt,
}

impl fmt::Display for Cause {
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

/// A question that was not answered. The one thing everybody must ask it: may it have happened?
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// It may have taken effect. Only a closed table of known errors clears this.
    pub unknown: bool,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// It has definitely not taken effect and never will.
    #[must_use]
    pub fn not_done(cause: Cause, message: impl Into<String>) -> Self {
        Self {
            cause,
            unknown: false,
            message: message.into(),
            source: None,
        }
    }

    /// It may have taken effect, or may still do so.
    #[must_use]
    pub fn unknown(cause: Cause, message: impl Into<String>) -> Self {
        Self {
            cause,
            unknown: true,
            message: message.into(),
            source: None,
        }
    }

    /// With the error it came from.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What happened, without secrets.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Asking again soon may help: it is about the way to the store or its state, not about us.
    #[must_use]
    pub fn transient(&self) -> bool {
        matches!(
            self.cause,
            Cause::Unreachable | Cause::TimedOut | Cause::Overloaded | Cause::ReadOnly
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = if self.unknown {
            "it may have taken effect"
        } else {
            "nothing was changed"
        };
        write!(f, "{}: {} ({effect})", self.cause, self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
