//! Findings of a store examination: what `doctor` prints.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::PromiseReport;

/// How much a finding matters. Ordered: a worse finding is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Severity {
    /// Information without a risk.
    Note,
    /// A setting that can become a problem.
    Risk,
    /// A promise can be broken now: two holders at once, a fence that does not grow, or no locks at
    /// all.
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

/// One result of a store examination, with advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// A stable identifier for programs, e.g. `redis.eviction`.
    pub code: &'static str,
    /// Sort key of the report; `Breaks` makes `doctor` fail.
    pub severity: Severity,
    /// The observed fact and its consequence for locks.
    pub what: String,
    /// The change that removes the finding.
    pub advice: String,
    /// No lock can be granted, or none that another process sees. `doctor` then takes no lock for a
    /// trial, which would only report the same again.
    pub fatal: bool,
}

impl Finding {
    /// A finding of severity [`Severity::Breaks`].
    #[must_use]
    pub fn breaks(code: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(code, Severity::Breaks, what.into(), advice.into())
    }

    /// A finding of severity [`Severity::Risk`].
    #[must_use]
    pub fn risk(code: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(code, Severity::Risk, what.into(), advice.into())
    }

    /// A finding of severity [`Severity::Note`].
    #[must_use]
    pub fn note(code: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, what.into(), advice.into())
    }

    /// Marks the finding as fatal.
    #[must_use]
    pub const fn fatal(mut self) -> Self {
        self.fatal = true;
        self
    }

    const fn new(code: &'static str, severity: Severity, what: String, advice: String) -> Self {
        Self { code, severity, what, advice, fatal: false }
    }
}

/// The report of a store examination. The store's crate makes it, because only that crate knows the
/// store's failure modes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Examination {
    /// The findings, worst first after [`sort_findings`](Self::sort_findings).
    pub findings: Vec<Finding>,
    /// The promise in the current configuration, if the store answered.
    pub promised: Option<PromiseReport>,
    /// The median round trip of several calls, if any was answered.
    pub round_trip: Option<Duration>,
    /// Descriptive pairs for people, such as `version` and `7.0.15`.
    pub facts: Vec<(&'static str, String)>,
}

impl Examination {
    /// Appends a finding; the order is fixed later by [`sort_findings`](Self::sort_findings).
    pub fn add_finding(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Appends a descriptive pair.
    pub fn add_fact(&mut self, key: &'static str, value: impl Into<String>) {
        self.facts.push((key, value.into()));
    }

    /// Sorts by severity, worst first. Findings of one severity keep their order.
    pub fn sort_findings(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}
