//! What can go wrong, by what the caller can do about it. Contention is not in here: it is an answer.

use std::fmt;
use std::time::Duration;

use crate::event::Loss;
use crate::store::{Busy as StoreBusy, Cause};
use crate::word::{Fence, Invalid, Name};

/// An acquire that has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be asked and the class is fail-closed. Come again after `retry_after`.
    #[error(
        "{name}: the store is unavailable ({cause}: {message}); class {class} is fail-closed, so the work does not run"
    )]
    Unavailable {
        /// What was to be locked.
        name: Name,
        /// For which class.
        class: String,
        /// Why the store could not be asked.
        cause: Cause,
        /// What it said last.
        message: String,
        /// When to come again.
        retry_after: Duration,
    },
    /// The input cannot be used. Mend the call or the policy file.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The client is shutting down.
    #[error("the client is shutting down and takes no new locks")]
    Closed,
}

/// The lease is lost: stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: lost: {reason}")]
pub struct Lost {
    /// What was held.
    pub name: Name,
    /// Why it ended.
    pub reason: Loss,
}

/// There is no fence to write with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoFence {
    /// The hold is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The hold is exclusive in this process only, so no store has issued a fence for it. Wait until it is healed, or
    /// say `unfenced` if the target takes writes twice.
    #[error(
        "{name}: held locally only, so there is no fence; wait until it heals, or write unfenced on purpose"
    )]
    LocalOnly {
        /// What is held.
        name: Name,
    },
}

/// Work under a lock that did not come to its end.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T> {
    /// Someone else has it: the work did not run.
    #[error("{0}")]
    Busy(Busy),
    /// No answer to the acquire: the work did not run.
    #[error(transparent)]
    Acquire(#[from] Error),
    /// The lease was lost: the work was stopped, or ended too late. What it had returned by then is in here.
    #[error("{lost}")]
    Lost {
        /// Why.
        lost: Lost,
        /// The work's own result, if it had one.
        result: Option<T>,
    },
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(busy) => f.debug_tuple("Busy").field(busy).finish(),
            Self::Acquire(error) => f.debug_tuple("Acquire").field(error).finish(),
            Self::Lost { lost, result } => f
                .debug_struct("Lost")
                .field("lost", lost)
                .field("result", &result.is_some())
                .finish(),
        }
    }
}

/// Someone else has it. An answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// What was asked for.
    pub name: Name,
    /// Who has it.
    pub holder: String,
    /// The holder's class.
    pub class: Option<String>,
    /// The holder's fence.
    pub fence: Option<Fence>,
    /// Until the lease is over if nobody renews it.
    pub remaining: Option<Duration>,
    /// How long was waited for it.
    pub waited: Duration,
    /// This very process has it: waiting longer cannot help the caller who holds it.
    pub held_here: bool,
    /// Where this process asked for it, if it still works under it.
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
