//! Why a hold ended early.

use std::fmt;

/// Why a hold ended before its work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The store answered that the lease no longer belongs to this token.
    NotOwned,
    /// As many consecutive renewals failed as the class allows.
    MaxFailures,
    /// The deadline of the last confirmed lease passed.
    Deadline,
    /// The class's `max_hold` elapsed.
    MaxHold,
    /// A local-only hold tried to heal and found another holder.
    HealConflict,
    /// An operator broke the lease.
    Broken,
    /// The client shut down before the work finished.
    Shutdown,
    /// The keeper task ended.
    KeeperGone,
}

impl Loss {
    /// The value of the metrics' `reason` label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotOwned => "not_owned",
            Self::MaxFailures => "max_failures",
            Self::Deadline => "deadline",
            Self::MaxHold => "max_hold",
            Self::HealConflict => "heal_conflict",
            Self::Broken => "broken",
            Self::Shutdown => "shutdown",
            Self::KeeperGone => "keeper_gone",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOwned => "the store says it is not ours any more",
            Self::MaxFailures => "renewal failed too often in a row",
            Self::Deadline => "the lease could not be confirmed before its deadline",
            Self::MaxHold => "max_hold is over",
            Self::HealConflict => "another client held it while this hold was local-only",
            Self::Broken => "an operator broke it",
            Self::Shutdown => "the client shut down",
            Self::KeeperGone => "the renewing task died",
        })
    }
}
