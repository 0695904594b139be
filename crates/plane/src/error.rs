//! The plane's errors, grouped by what the caller can do about them.

use std::time::Duration;

use leasehold_core::hold::CoverError;
use leasehold_core::store::StoreError;
use leasehold_core::{Busy, InvalidInput, LeaseLost};
use leasehold_wire::ErrorCode;

use crate::store::WriteRefusal;

/// An operation of the plane that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The hold is lost: stop working. Nothing was written.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The store refused the write: another writer was first.
    #[error("refused: {0}")]
    Refused(#[from] WriteRefusal),
    /// The plane's store failed or did not respond.
    #[error("the plane's store: {0}")]
    Store(#[from] StoreError),
    /// Another client holds the lock. Retry later.
    #[error("{busy}")]
    Busy {
        /// The error code, stable for programs.
        code: ErrorCode,
        /// The current holder and its remaining lease time, as far as known.
        busy: Box<Busy>,
        /// How long to wait before a retry.
        retry_after: Duration,
    },
    /// The lock store is unavailable and the class is fail-closed. Retry later.
    #[error("{0}")]
    Lock(leasehold_core::Error),
    /// The input is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The job, run or workflow does not exist.
    #[error("there is no {kind} {id}")]
    NotFound {
        /// `job`, `run` or `workflow`.
        kind: &'static str,
        /// The id that was looked up.
        id: String,
    },
    /// The operation is not possible in the present state.
    #[error("{what}")]
    Conflict {
        /// The error code, stable for programs.
        code: ErrorCode,
        /// The explanation for people.
        what: String,
    },
    /// The approval was decided before.
    #[error("job {id} was {} by {by} already: {reason}", if *approved { "approved" } else { "rejected" })]
    AlreadyDecided {
        /// The job's id.
        id: String,
        /// True if it was approved, false if rejected.
        approved: bool,
        /// The person that decided.
        by: String,
        /// The reason that person gave.
        reason: String,
    },
    /// The organisation has reached its limit of running workflows.
    #[error("{org} has {running} runs under way, and {limit} are allowed: wait until one has ended")]
    LimitReached {
        /// The organisation whose limit is reached.
        org: String,
        /// How many runs are in progress.
        running: u64,
        /// How many runs are allowed.
        limit: u64,
    },
}

impl From<CoverError> for PlaneError {
    fn from(error: CoverError) -> Self {
        match error {
            CoverError::Lost(lost) => Self::Lost(lost),
            other => Self::Invalid(InvalidInput::new("hold", "", other.to_string())),
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
    /// The error code, stable for programs.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Lost(_) => ErrorCode::Lost,
            Self::Refused(WriteRefusal::StaleFence { .. }) => ErrorCode::StaleFence,
            Self::Refused(WriteRefusal::QuotaReached { .. }) => ErrorCode::QuotaReached,
            Self::Refused(_) => ErrorCode::Conflict,
            Self::Store(_) => ErrorCode::StoreUnavailable,
            Self::Busy { code, .. } | Self::Conflict { code, .. } => *code,
            Self::Lock(_) => ErrorCode::LockUnavailable,
            Self::Invalid(_) => ErrorCode::Invalid,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::AlreadyDecided { approved: true, .. } => ErrorCode::AlreadyApproved,
            Self::AlreadyDecided { .. } => ErrorCode::AlreadyRejected,
            Self::LimitReached { .. } => ErrorCode::LimitReached,
        }
    }

    /// How long to wait before a retry; `None` if a retry cannot help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => Some(*retry_after),
            Self::Lock(leasehold_core::Error::Unavailable { retry_after, .. }) => Some(*retry_after),
            // These errors carry no estimate of their own.
            Self::Store(_) | Self::Lock(_) | Self::LimitReached { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}
