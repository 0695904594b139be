//! One change of the policy in force: what the event `policy_changed` carries.

use std::fmt;
use std::sync::Arc;

use crate::clock::Moment;

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// An operator set it for a while.
    Set,
    /// An operator took the override back before its time.
    Cleared,
    /// An override or an escalation ended by itself.
    Reverted,
    /// The policy file changed it.
    Reloaded,
    /// The policy file has a new class.
    Added,
    /// The policy file no longer has the class.
    Removed,
    /// A rule took force.
    Escalated,
}

impl ChangeKind {
    /// As events and messages spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Cleared => "cleared",
            Self::Reverted => "reverted",
            Self::Reloaded => "reloaded",
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Escalated => "escalated",
        }
    }
}

/// One value that changed, from what to what, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The class.
    pub class: Arc<str>,
    /// The field's path; empty when the whole class came or went.
    pub field: String,
    /// What was in force before.
    pub from: String,
    /// What is in force now.
    pub to: String,
    /// What kind of change.
    pub kind: ChangeKind,
    /// The operator's reason, the rule, or the file.
    pub reason: String,
    /// When it reverts by itself.
    pub until: Option<Moment>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class.{}", self.class)?;
        if !self.field.is_empty() {
            write!(f, ".{}: {} -> {}", self.field, self.from, self.to)?;
        }
        write!(f, " ({}: {})", self.kind.as_str(), self.reason)
    }
}
