//! One change of the policy in force: the content of the event `policy_changed`.

use std::fmt;
use std::sync::Arc;

use crate::clock::Moment;

/// The cause of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// An operator set an override.
    Set,
    /// An operator cleared an override before its end.
    Cleared,
    /// An override or an escalation ended by itself.
    Reverted,
    /// The policy file states another value.
    Reloaded,
    /// The policy file has a new class.
    Added,
    /// The policy file no longer has the class.
    Removed,
    /// An escalation rule became active.
    Escalated,
}

impl ChangeKind {
    /// The name in events and messages.
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

/// One value in force that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The class that changed.
    pub class: Arc<str>,
    /// The field's path; empty if the whole class was added or removed.
    pub field: String,
    /// The previous value.
    pub from: String,
    /// The new value.
    pub to: String,
    /// What caused the change.
    pub kind: ChangeKind,
    /// The operator's reason, the rule, or the file.
    pub reason: String,
    /// The end of the override; `None` for other causes.
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
