//! The origins of a class's values, and the printed form of a class.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Class;
use super::duration::human;
use super::field::Field;
use super::rule::Rule;
use crate::clock::Moment;

/// The origin of a value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// No layer states the field; this is its default.
    Default,
    /// Computed from another value by this rule.
    Derived(&'static str),
    /// A built-in class.
    BuiltIn {
        /// The built-in class that states the value.
        class: Arc<str>,
    },
    /// A policy file.
    File {
        /// The path as it was given when the file was loaded.
        path: Arc<str>,
        /// The line number, from 1.
        line: usize,
    },
    /// An active escalation rule.
    Escalation {
        /// The text of the rule.
        rule: Arc<str>,
        /// When the rule became active.
        since: Moment,
    },
    /// An operator's override.
    Override {
        /// The operator's reason.
        reason: Arc<str>,
        /// The end of the override.
        until: Moment,
    },
    /// The options of one request.
    Request,
}

impl Origin {
    /// The prefix of messages about the value: `leasehold.toml:12: ` for a value from a file.
    pub(crate) fn message_prefix(&self) -> Option<String> {
        match self {
            Self::File { path, line } => Some(format!("{path}:{line}: ")),
            _ => None,
        }
    }

    /// Describes the origin for people, with durations relative to `now`.
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

/// A class in force, with the origin of every value. It prints as a table of field, value and
/// origin.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ResolvedClass {
    /// The class with all values resolved.
    pub class: Class,
    /// Origins by field path; a field without a value (such as `poll`) is missing.
    pub origins: BTreeMap<String, Origin>,
    /// The time of resolution: remaining times are relative to it.
    pub at: Moment,
    /// The escalation rules of this class.
    pub rules: Vec<Rule>,
    // The stated text (`ttl/3`) and the value (`20s`).
    pub(crate) resolved_values: BTreeMap<Field, (String, String)>,
}

impl ResolvedClass {
    /// The value of a field for people: `20s`, `fence`, `3`.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&str> {
        let (_, value) = self.resolved_values.get(&Field::find(path)?)?;
        Some(value)
    }

    /// The rows of the table: path, value with its expression, origin.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let row = |(field, (stated, value)): (&Field, &(String, String))| {
            let path = field.path().to_owned();
            let origin = self.origins.get(&path).map_or_else(String::new, |origin| origin.describe(self.at));
            let shown = if is_expression(stated) { format!("{value} ({stated})") } else { value.clone() };
            [path, shown, origin]
        };
        self.resolved_values.iter().map(row).collect()
    }

    /// The class as a policy file that states every value in force now.
    #[must_use]
    pub fn to_toml(&self) -> String {
        use fmt::Write as _;
        let mut text = format!("[class.{}]\n", self.class.name);
        for (field, (stated, _)) in &self.resolved_values {
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

/// Returns true if the text is a formula such as `ttl/3`.
fn is_expression(stated: &str) -> bool {
    stated.contains("ttl/") || stated.ends_with("poll")
}

impl fmt::Display for ResolvedClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let width = |column: fn(&[String; 3]) -> &String| {
            rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
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
