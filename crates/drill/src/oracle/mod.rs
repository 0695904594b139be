//! The checker: reads a history and says which promises it breaks.
//!
//! It is apart from the code it checks: it knows the lines of a history and the numbered invariants, nothing of
//! clients, keepers or stores. [`Case`] puts the lines in order (what belongs to which acquire, which grants there were);
//! each invariant in [`invariant`] then looks at the case and reports [`Finding`]s.
//!
//! An acquire without an answer may have been granted at any moment after it was sent: it can excuse a lease that was
//! seen, and it never proves anything. Everything is sorted and swept, O(n log n) in the number of lines.

mod attempt;
mod case;
mod event;

pub use attempt::{Attempt, Claim, Ending, Grant, Terms, Write};
pub use case::Case;
#[cfg(feature = "drills")]
pub(crate) use event::granted;

use crate::history::History;
use crate::invariant;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which invariant.
    pub invariant: &'static str,
    /// When it shows, in nanoseconds of the host's boot clock.
    pub at: u64,
    /// On which lock.
    pub name: String,
    /// What is wrong, in words.
    pub why: String,
}

/// What the checker says about a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// In the order of time; at most [`MOST_FINDINGS`] of each invariant.
    pub findings: Vec<Finding>,
    /// Findings beyond that bound.
    pub more: usize,
    /// Lines are missing: no finding is worth less, but *clean* is.
    pub incomplete: bool,
    /// Why it is incomplete: the first thing that is missing.
    pub lacks: Option<String>,
    /// The invariants that this history can show; of the others it says nothing.
    pub judged: Vec<&'static str>,
    /// How many lines were judged.
    pub records: usize,
    /// How many grants there were.
    pub grants: usize,
    /// How many writes the target applied.
    pub applied: usize,
    /// How many things the checker looked at, over all its passes: the work it did, counted and not timed.
    pub looks: u64,
}

/// The most findings of one invariant that are kept: a blind store breaks the same promise thousands of times.
pub const MOST_FINDINGS: usize = 100;

impl Judgement {
    /// Nothing is broken and nothing is missing.
    #[must_use]
    pub fn clean(&self) -> bool {
        self.findings.is_empty() && !self.incomplete
    }

    /// Whether this invariant is broken.
    #[must_use]
    pub fn breaks(&self, invariant: &str) -> bool {
        self.findings.iter().any(|found| found.invariant == invariant)
    }
}

/// Judges a history.
#[must_use]
pub fn judge(history: &History) -> Judgement {
    let case = Case::new(&history.records);
    let (mut findings, mut more) = (Vec::new(), 0);
    for (number, check) in invariant::ALL {
        let mut found = check(&case);
        debug_assert!(found.iter().all(|found| found.invariant == *number));
        found.sort_by_key(|found| found.at);
        more += found.len().saturating_sub(MOST_FINDINGS);
        found.truncate(MOST_FINDINGS);
        findings.append(&mut found);
    }
    findings.sort_by_key(|found| found.at);
    let lacks = history.lacks().or_else(|| case.lacks());
    Judgement {
        findings,
        more,
        incomplete: lacks.is_some(),
        lacks,
        judged: invariant::judged(&case),
        records: history.records.len(),
        grants: case.grants.len(),
        applied: case.applied.len(),
        looks: case.looks(),
    }
}
