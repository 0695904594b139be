//! The eight rights that a grant can give.

use std::fmt;

/// What a principal may do with the names of a grant. Rights are not ordered: see
/// [`implies`](Self::implies).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Right {
    /// Read: list, show, events, history, policies.
    Read,
    /// Acquire, renew and release locks.
    Hold,
    /// Submit, cancel and retry jobs; start, cancel and rerun runs.
    Submit,
    /// Claim jobs, send their heartbeats and report their results.
    Work,
    /// Approve, reject and repair jobs that wait for a person.
    Approve,
    /// Create workflows and their next versions.
    Define,
    /// Have replicas run commands: in jobs, and in the steps of workflows.
    Command,
    /// Break leases and change policies. Implies every other right.
    Admin,
}

impl Right {
    /// Every right, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Hold,
        Self::Submit,
        Self::Work,
        Self::Approve,
        Self::Define,
        Self::Command,
        Self::Admin,
    ];

    /// The word for this right in a grant, for example in the tokens file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Hold => "hold",
            Self::Submit => "submit",
            Self::Work => "work",
            Self::Approve => "approve",
            Self::Define => "define",
            Self::Command => "command",
            Self::Admin => "admin",
        }
    }

    /// Whether a grant of this right also gives `other` on the same scope.
    #[must_use]
    pub fn implies(self, other: Self) -> bool {
        // `approve` and `command` add to what a caller may see already, so they show nothing themselves.
        let reads = !matches!(self, Self::Approve | Self::Command);
        self == other || self == Self::Admin || (other == Self::Read && reads)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_05_no_right_implies_another_but_read_and_admin() {
        for has in Right::ALL {
            for wanted in Right::ALL {
                let expected = match (has, wanted) {
                    (Right::Admin, _) => true,
                    (Right::Approve | Right::Command, Right::Read) => false,
                    (_, Right::Read) => true,
                    _ => has == wanted,
                };
                assert_eq!(has.implies(wanted), expected, "{has} implies {wanted}");
            }
        }
    }
}
