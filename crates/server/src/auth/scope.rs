//! The names that a grant covers: a prefix of whole segments, so that `team` does not cover
//! `team2`.

use std::fmt;
use std::str::FromStr;

use leasehold::{InvalidInput, Name};

/// Leading segments of names, separated by `:`. No segments covers everything.
///
/// The first segment is the namespace, as events and metrics use it: `job:42` is in `job`, `backup`
/// in `default`. Further segments narrow the scope: `res:tenant-1` covers `res:tenant-1:gpu` but
/// not `res:tenant-10:gpu`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(Vec<String>);

impl Scope {
    /// The scope `*`, which covers every name.
    #[must_use]
    pub fn everything() -> Self {
        Self(Vec::new())
    }

    /// Whether this is the scope `*`.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the scope covers this name.
    #[must_use]
    pub fn covers(&self, name: &Name) -> bool {
        let (namespace, rest) = split(name);
        let path = std::iter::once(namespace).chain(rest.split(':'));
        self.0
            .iter()
            .map(Some)
            .zip(path.map(Some).chain(std::iter::repeat(None)))
            .all(|(mine, theirs)| mine.map(String::as_str) == theirs)
    }

    /// Whether every name that `other` covers is covered by this scope too.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Whether the scope covers every name of this namespace.
    #[must_use]
    pub fn covers_namespace(&self, namespace: &str) -> bool {
        match self.0.as_slice() {
            [] => true,
            [only] => only == namespace,
            _ => false,
        }
    }

    /// Whether the scope covers at least one possible name of this namespace.
    #[must_use]
    pub fn meets_namespace(&self, namespace: &str) -> bool {
        self.0.first().is_none_or(|first| first == namespace)
    }

    /// The beginning of the names that it covers within a namespace, without the namespace: empty if it covers
    /// all of them, `None` if none.
    #[must_use]
    pub fn prefix_within(&self, namespace: &str) -> Option<String> {
        match self.0.as_slice() {
            [] => Some(String::new()),
            [first, rest @ ..] => (first == namespace).then(|| rest.join(":")),
        }
    }

    /// The common prefix of all covered names; empty if they have none.
    #[must_use]
    pub fn prefix(&self) -> String {
        match self.0.as_slice() {
            // `default` also contains names without a namespace, so they share no prefix.
            [] => String::new(),
            [first, ..] if first == "default" => String::new(),
            all => all.join(":"),
        }
    }
}

/// Splits a name into its namespace and the rest.
fn split(name: &Name) -> (&str, &str) {
    let namespace = name.namespace();
    let rest = match name.as_str().split_once(':') {
        Some((_, rest)) => rest,
        None => name.as_str(),
    };
    (namespace, rest)
}

impl FromStr for Scope {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        if text == "*" {
            return Ok(Self::everything());
        }
        let segments: Vec<_> = text.split(':').map(str::to_owned).collect();
        let plain = |segment: &String| !segment.is_empty() && !segment.contains('*');
        // A scope that is not itself a valid name can never be a prefix of one.
        if Name::new(text).is_err() || !segments.iter().all(plain) {
            let allowed = "must be `*`, a namespace such as job, or segments of names such as res:tenant-1";
            return Err(InvalidInput::new("scope", text, allowed));
        }
        Ok(Self(segments))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_everything() { f.write_str("*") } else { f.write_str(&self.0.join(":")) }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(scope: &str, name: &str) -> bool {
        let scope: Scope = scope.parse().unwrap();
        scope.covers(&Name::new(name).unwrap())
    }

    #[test]
    fn segments_are_compared_whole() {
        assert!(covers("team", "team:1") && covers("team", "team:a:b"));
        for foreign in ["team2:1", "tea:1", "team2", "team", "x:team:1", "Team:1"] {
            assert!(!covers("team", foreign), "{foreign}");
        }
        assert!(covers("res:t1", "res:t1:gpu") && covers("res:t1", "res:t1"));
        for foreign in ["res:t10:gpu", "res:t", "res:x:t1", "res"] {
            assert!(!covers("res:t1", foreign), "{foreign}");
        }
    }

    #[test]
    fn names_without_a_namespace_are_in_default() {
        for name in ["backup", ":x", "default:x"] {
            assert!(covers("default", name), "{name}");
            assert!(covers("*", name), "{name}");
        }
        assert!(!covers("default", "job:1") && !covers("backup", "backup"));
    }

    #[test]
    fn a_part_of_a_namespace_is_not_the_namespace() {
        let scope: Scope = "res:t1".parse().unwrap();
        assert!(!scope.covers_namespace("res"));
        assert!(Scope::everything().covers_namespace("res"));
        assert_eq!(scope.prefix_within("res"), Some("t1".into()));
        assert_eq!(scope.prefix_within("job"), None);
        assert_eq!(Scope::everything().prefix_within("res"), Some(String::new()));
    }

    #[test]
    fn invalid_scopes_are_refused() {
        for bad in ["", ":", "a::b", "a:", "te*m", "a b", "**"] {
            assert!(bad.parse::<Scope>().is_err(), "{bad:?}");
        }
    }
}
