//! What can go wrong, by what the caller can do about it.

use std::time::Duration;

use leasehold_core::hold::NotCovered;
use leasehold_core::store::Failure;
use leasehold_core::{Busy, Invalid, Lost};

use crate::store::Refusal;

/// A step of the plane that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The hold is lost: stop. Nothing was written.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store refused the write: someone else was first.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The plane's store did not answer.
    #[error("the plane's store: {0}")]
    Store(#[from] Failure),
    /// Someone else holds the lock. Come again.
    #[error("{busy}")]
    Busy {
        /// A word for programs.
        code: &'static str,
        /// Who, and for how long.
        busy: Box<Busy>,
        /// When to come again.
        retry_after: Duration,
    },
    /// The lock's store could not be asked, and the class is fail-closed. Come again.
    #[error("{0}")]
    Lock(leasehold_core::Error),
    /// The input cannot be used.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such thing.
    #[error("there is no {kind} {id}")]
    NotFound {
        /// What kind.
        kind: &'static str,
        /// Which.
        id: String,
    },
    /// It is not possible in its present state.
    #[error("{what}")]
    Conflict {
        /// A word for programs.
        code: &'static str,
        /// What stands against it.
        what: String,
    },
    /// Someone has decided it already.
    #[error("job {id} was {} by {by} already: {reason}", if *approved { "approved" } else { "rejected" })]
    Decided {
        /// What was decided about.
        id: String,
        /// What was decided.
        approved: bool,
        /// Who did.
        by: String,
        /// Why.
        reason: String,
    },
    /// The organisation has as many runs under way as it may.
    #[error("{org} has {running} runs under way, and {limit} are allowed: wait until one has ended")]
    Limit {
        /// Whose limit.
        org: String,
        /// How many there are.
        running: u64,
        /// How many there may be.
        limit: u64,
    },
}

impl From<NotCovered> for PlaneError {
    fn from(error: NotCovered) -> Self {
        match error {
            NotCovered::Lost(lost) => Self::Lost(lost),
            other => Self::Invalid(Invalid::new("hold", "", other.to_string())),
        }
    }
}

impl From<leasehold_core::Error> for PlaneError {
    fn from(error: leasehold_core::Error) -> Self {
        match error {
            leasehold_core::Error::Invalid(invalid) => Self::Invalid(invalid),
            other => Self::Lock(other),
        }
    }
}

impl PlaneError {
    /// A word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Refused(Refusal::Stale { .. }) => "stale_fence",
            Self::Refused(_) => "conflict",
            Self::Store(_) => "store_unavailable",
            Self::Busy { code, .. } => code,
            Self::Lock(_) => "lock_unavailable",
            Self::Invalid(_) => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::Conflict { code, .. } => code,
            Self::Decided { approved: true, .. } => crate::approval::code::ALREADY_APPROVED,
            Self::Decided { .. } => crate::approval::code::ALREADY_REJECTED,
            Self::Limit { .. } => "limit_reached",
        }
    }

    /// The HTTP status that says the same.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Lost(_) => 410,
            Self::Refused(Refusal::Stale { .. }) => 412,
            Self::Busy {
                code: "admission_busy",
                ..
            } => 429,
            Self::Refused(_) | Self::Busy { .. } | Self::Conflict { .. } | Self::Decided { .. } => 409,
            Self::Store(_) | Self::Lock(_) => 503,
            Self::Invalid(_) => 422,
            Self::NotFound { .. } => 404,
            Self::Limit { .. } => 429,
        }
    }

    /// When to come again, if that may help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => Some(*retry_after),
            Self::Lock(leasehold_core::Error::Unavailable { retry_after, .. }) => Some(*retry_after),
            Self::Store(_) | Self::Lock(_) | Self::Limit { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}
