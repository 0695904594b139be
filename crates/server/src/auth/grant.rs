//! A grant is a right on a scope: `hold:deploy` allows holding locks whose names begin with `deploy:`.

use std::fmt;
use std::str::FromStr;

use leasehold::{InvalidInput, Name};

use super::{Right, Scope};

/// The kinds of names of the control plane.
const KINDS: [&str; 6] = ["job", "run", "topic", "workflow", "org", "res"];

/// A right on a scope. The scope's first segment is a kind of the control plane (`job`, `run`, `topic`,
/// `workflow`, `org`, `res`) or a namespace of locks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The right; [`Right::implies`] says which others it gives.
    pub right: Right,
    /// The names on which the right applies.
    pub scope: Scope,
}

impl Grant {
    /// `admin:*`: every action on every name.
    #[must_use]
    pub fn everything() -> Self {
        Self { right: Right::Admin, scope: Scope::everything() }
    }

    /// Checks that the right exists for names of the scope: some rights are for the control plane only.
    ///
    /// # Errors
    /// The scope names no kind of the control plane, so the grant would allow nothing.
    pub fn check_kind(&self) -> Result<(), InvalidInput> {
        let for_plane = matches!(
            self.right,
            Right::Submit | Right::Work | Right::Approve | Right::Define | Right::Command
        );
        let known = self.scope.is_everything() || KINDS.iter().any(|kind| self.scope.meets_namespace(kind));
        if !for_plane || known {
            return Ok(());
        }
        let kinds = KINDS.join(", ");
        let why = format!(
            "allows nothing: {} is for `*` or for a scope that begins with {kinds}, e.g. {}:job:acme",
            self.right, self.right
        );
        Err(InvalidInput::new("grant", self.to_string(), why))
    }

    /// Whether this grant gives `right` on `name`.
    #[must_use]
    pub fn allows(&self, right: Right, name: &Name) -> bool {
        self.right.implies(right) && self.scope.covers(name)
    }
}

impl FromStr for Grant {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let refuse = || {
            let rights = Right::ALL.map(Right::as_str).join(", ");
            let allowed = format!(
                "must be RIGHT:SCOPE with a right of {rights}, e.g. hold:deploy, work:topic:pay or read:*"
            );
            InvalidInput::new("grant", text, allowed)
        };
        let (right, scope) = text.split_once(':').ok_or_else(refuse)?;
        let right = Right::ALL.into_iter().find(|known| known.as_str() == right).ok_or_else(refuse)?;
        Ok(Self { right, scope: scope.parse()? })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.right, self.scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_reads_as_it_is_written() {
        for right in Right::ALL {
            for scope in ["*", "deploy", "topic:pay", "res:t1:gpu"] {
                let text = format!("{right}:{scope}");
                let grant: Grant = text.parse().unwrap();
                assert_eq!((grant.right, grant.to_string()), (right, text));
            }
        }
    }

    #[test]
    fn a_right_of_the_plane_needs_a_kind_of_the_plane() {
        let checked = |text: &str| text.parse::<Grant>().unwrap().check_kind();
        for right in ["submit", "work", "approve", "define", "command"] {
            for scope in ["*", "job", "job:acme", "topic:pay", "res:t1:gpu"] {
                checked(&format!("{right}:{scope}")).unwrap();
            }
            let refused = checked(&format!("{right}:deploy")).unwrap_err().to_string();
            assert!(KINDS.iter().all(|kind| refused.contains(kind)), "{refused}");
        }
        for text in ["hold:deploy", "read:jobs", "admin:deploy"] {
            checked(text).unwrap();
        }
    }

    #[test]
    fn a_bad_grant_is_refused_with_all_rights() {
        for bad in ["own:job", "job", "", "READ:job", "hold"] {
            let message = bad.parse::<Grant>().unwrap_err().to_string();
            assert!(Right::ALL.iter().all(|right| message.contains(right.as_str())), "{message}");
        }
        assert!("hold:a::b".parse::<Grant>().unwrap_err().to_string().contains("scope"));
    }
}
