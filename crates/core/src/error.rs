//! Errors of the client, grouped by what the caller can do. Contention is not among them: it is a
//! result.

use std::fmt;
use std::time::Duration;

use crate::event::Loss;
use crate::store::{BusyLease as StoreBusy, StoreErrorKind};
use crate::types::{Fence, InvalidInput, Name};

/// An acquire that could not be decided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store did not answer and the class is fail-closed. Retry after `retry_after`.
    #[error(
        "{name}: the store is unavailable ({cause}: {message}); class {class} is fail-closed, so the work does not run"
    )]
    Unavailable {
        /// The name to lock.
        name: Name,
        /// The class of the request.
        class: String,
        /// Why the last store call failed.
        cause: StoreErrorKind,
        /// The text of the last store error.
        message: String,
        /// The class's advice: how long to wait before a retry.
        retry_after: Duration,
    },
    /// The request or the policy is invalid. Correct the call or the policy file.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client is shutting down.
    #[error("the client is shutting down and takes no new locks")]
    Closed,
}

/// The lease is lost: stop the work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: lost: {reason}")]
#[non_exhaustive]
pub struct LeaseLost {
    /// The name that was locked.
    pub name: Name,
    /// The reason, also in the event and in the metrics.
    pub reason: Loss,
}

/// The hold has no fence to write with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The hold ended.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The hold is exclusive in this process only, so no store has issued a fence. Wait until it
    /// heals, or use `fence_if_any` if the target accepts repeated writes.
    #[error(
        "{name}: held locally only, so there is no fence; wait until it heals, or write unfenced on purpose"
    )]
    LocalOnly {
        /// The locked name.
        name: Name,
    },
}

/// [`ClassLocks::run`](crate::ClassLocks::run) did not complete the work under the lock.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T> {
    /// Another holder has the lock: the work did not run.
    #[error("{0}")]
    Busy(Busy),
    /// The acquire could not be decided: the work did not run.
    #[error(transparent)]
    Acquire(#[from] Error),
    /// The lease was lost: the work was stopped, or ended too late.
    #[error("{lost}")]
    Lost {
        /// The name and the reason.
        lost: LeaseLost,
        /// The work's result, if it had returned by then.
        result: Option<T>,
    },
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(busy) => f.debug_tuple("Busy").field(busy).finish(),
            Self::Acquire(error) => f.debug_tuple("Acquire").field(error).finish(),
            Self::Lost { lost, result } => {
                f.debug_struct("Lost").field("lost", lost).field("result", &result.is_some()).finish()
            }
        }
    }
}

/// Another holder has the lock. A result, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The requested name.
    pub name: Name,
    /// The current holder.
    pub holder: String,
    /// The class of the current holder, if known.
    pub class: Option<String>,
    /// The fence of the current lease, if known.
    pub fence: Option<Fence>,
    /// Time until the lease expires without a renewal.
    pub remaining: Option<Duration>,
    /// How long this request waited.
    pub waited: Duration,
    /// This process holds the lock. A longer wait cannot help a task that waits for its own lock.
    pub held_here: bool,
    /// The acquire call of the current hold, if this process still works under it.
    pub held_at: Option<&'static std::panic::Location<'static>>,
}

impl Busy {
    pub(crate) fn from_store(name: Name, busy: StoreBusy, waited: Duration, me: &str) -> Self {
        let held_here = busy.holder == me;
        Self {
            name,
            holder: busy.holder,
            class: busy.class,
            fence: busy.fence,
            remaining: busy.remaining,
            waited,
            held_here,
            held_at: None,
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.name, self.holder)?;
        if let Some(class) = &self.class {
            write!(f, " (class {class})")?;
        }
        if let Some(at) = self.held_at {
            write!(f, ", in this process, since {at}")?;
        } else if self.held_here {
            write!(f, ", in this process")?;
        }
        if let Some(left) = self.remaining {
            write!(f, ", for {:.1}s unless renewed", left.as_secs_f64())?;
        }
        Ok(())
    }
}
