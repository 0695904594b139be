use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Promised;

/// How much a finding matters. Ordered: more is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It can become a problem.
    Risk,
    /// As it is, a promise can be broken: two holders at once, a fence that does not grow, or no locks at all.
    Breaks,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Risk => "risk",
            Self::Breaks => "breaks",
        })
    }
}

/// One thing that an examination of a store found, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it is called by machines, e.g. `redis.eviction`; does not change.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is so, and what it means for locks.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    /// A promise can be broken.
    #[must_use]
    pub fn breaks(code: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(code, Severity::Breaks, what.into(), advice.into())
    }

    /// It can become a problem.
    #[must_use]
    pub fn risk(code: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(code, Severity::Risk, what.into(), advice.into())
    }

    /// Worth knowing.
    #[must_use]
    pub fn note(code: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, what.into(), advice.into())
    }

    const fn new(code: &'static str, severity: Severity, what: String, advice: String) -> Self {
        Self {
            code,
            severity,
            what,
            advice,
        }
    }
}

/// What an examination of a store came to. Made by the store's crate, which knows what can be wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examination {
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What the store promises as it is configured now, if it could be asked.
    pub promised: Option<Promised>,
    /// One question and its answer, the middle of several tries, if any was answered.
    pub round_trip: Option<Duration>,
    /// What it is, for people: pairs such as `version` and `7.0.15`.
    pub facts: Vec<(&'static str, String)>,
}

impl Examination {
    /// Adds a finding.
    pub fn found(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Adds a fact.
    pub fn fact(&mut self, key: &'static str, value: impl Into<String>) {
        self.facts.push((key, value.into()));
    }

    /// The worst first, otherwise in the order in which they were found.
    pub fn sort(&mut self) {
        self.findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}
