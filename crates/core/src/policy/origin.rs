//! Where each value of a class came from, and the class printed with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Class;
use super::duration::human;
use super::field::Field;
use super::rule::Rule;
use crate::clock::Moment;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody stated it; this is what then holds.
    Default,
    /// It follows from another value by this rule.
    Derived(&'static str),
    /// A class that every installation has.
    BuiltIn {
        /// Which.
        class: Arc<str>,
    },
    /// A policy file.
    File {
        /// The file as it was named when it was loaded.
        path: Arc<str>,
        /// Counted from 1.
        line: usize,
    },
    /// A rule that is in force.
    Escalation {
        /// The rule as its author wrote it.
        rule: Arc<str>,
        /// When it took force.
        since: Moment,
    },
    /// An operator's temporary change.
    Override {
        /// Why.
        reason: Arc<str>,
        /// When it reverts by itself.
        until: Moment,
    },
    /// The caller's own request.
    Request,
}

impl Origin {
    /// `leasehold.toml:12: ` for values from a file, and nothing for others: the prefix of messages about them.
    pub(crate) fn place(&self) -> Option<String> {
        match self {
            Self::File { path, line } => Some(format!("{path}:{line}: ")),
            _ => None,
        }
    }

    /// For people, who think in time left rather than in moments of a clock.
    #[must_use]
    pub fn describe(&self, now: Moment) -> String {
        match self {
            Self::Default => "default".into(),
            Self::Derived(rule) => format!("derived: {rule}"),
            Self::BuiltIn { class } => format!("built-in {class}"),
            Self::File { path, line } => format!("{path}:{line}"),
            Self::Escalation { rule, since } => {
                format!("escalation since {} ago: {rule}", human(now.since(*since)))
            }
            Self::Override { reason, until } => {
                format!("override for another {}: {reason}", human(until.since(now)))
            }
            Self::Request => "request".into(),
        }
    }
}

/// A class in force, with the origin of every value. It prints as a table of field, value and origin.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Resolved {
    /// The class.
    pub class: Class,
    /// From field path to origin; a field that has no value (such as `poll`) is missing.
    pub origins: BTreeMap<String, Origin>,
    /// When it was asked for: times left are counted from here.
    pub at: Moment,
    /// The escalation rules that watch this class.
    pub rules: Vec<Rule>,
    /// What was stated (`ttl/3`) and what it comes to (`20s`), by field path.
    pub(crate) values: BTreeMap<Field, (String, String)>,
}

impl Resolved {
    /// The value of a field for people: `20s`, `fence`, `3`.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&str> {
        let (_, value) = self.values.get(&Field::find(path)?)?;
        Some(value)
    }

    /// The rows of the table: path, value with the expression behind it, origin.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let row = |(field, (stated, value)): (&Field, &(String, String))| {
            let path = field.path().to_owned();
            let origin = self
                .origins
                .get(&path)
                .map_or_else(String::new, |origin| origin.describe(self.at));
            let shown = if expression(stated) {
                format!("{value} ({stated})")
            } else {
                value.clone()
            };
            [path, shown, origin]
        };
        self.values.iter().map(row).collect()
    }

    /// The class as a policy file that states every value, as it is in force now.
    #[must_use]
    pub fn to_toml(&self) -> String {
        use fmt::Write as _;
        let mut text = format!("[class.{}]\n", self.class.name);
        for (field, (stated, _)) in &self.values {
            let value = match field {
                Field::RenewMaxFailures | Field::ReleaseAttempts => stated.clone(),
                Field::Escalate => {
                    let rules: Vec<_> = self.rules.iter().map(|rule| format!("\"{rule}\"")).collect();
                    format!("[{}]", rules.join(", "))
                }
                _ => format!("\"{stated}\""),
            };
            let _infallible = writeln!(text, "{} = {value}", field.path());
        }
        text
    }
}

/// Is it a formula rather than a value?
fn expression(stated: &str) -> bool {
    stated.contains("ttl/") || stated.ends_with("poll")
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let width = |column: fn(&[String; 3]) -> &String| {
            rows.iter()
                .map(|row| column(row).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (first, second) = (width(|row| &row[0]).max(5), width(|row| &row[1]).max(5));
        writeln!(f, "class {}", self.class.name)?;
        writeln!(f, "{:first$}  {:second$}  ORIGIN", "FIELD", "VALUE")?;
        for [field, value, origin] in &rows {
            writeln!(f, "{field:first$}  {value:second$}  {origin}")?;
        }
        Ok(())
    }
}
