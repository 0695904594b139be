//! A grant is a role on a scope: `hold:job` allows holding locks whose names begin with `job:`.

use std::fmt;
use std::str::FromStr;

use leasehold::InvalidInput;

use super::Scope;

/// What a principal may do. Each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Read only: list, show, events, history, policies.
    Read,
    /// Acquire, renew, release.
    Hold,
    /// Break leases, change policies.
    Admin,
}

impl Role {
    /// The word for this role in a grant, for example in the tokens file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Hold => "hold",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A role on a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The role; a higher role also satisfies rules that require a lower one.
    pub role: Role,
    /// The names on which the role applies.
    pub scope: Scope,
}

impl Grant {
    /// `admin:*`: every action on every name.
    #[must_use]
    pub fn everything() -> Self {
        Self { role: Role::Admin, scope: Scope::everything() }
    }
}

impl FromStr for Grant {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let refuse = || {
            let allowed = "must be read:SCOPE, hold:SCOPE or admin:SCOPE, e.g. hold:job or read:*";
            InvalidInput::new("grant", text, allowed)
        };
        let (role, scope) = text.split_once(':').ok_or_else(refuse)?;
        let role = [Role::Read, Role::Hold, Role::Admin]
            .into_iter()
            .find(|known| known.as_str() == role)
            .ok_or_else(refuse)?;
        Ok(Self { role, scope: scope.parse()? })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.role, self.scope)
    }
}
