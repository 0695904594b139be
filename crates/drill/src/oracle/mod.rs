//! The oracle: reads a history and reports which promises it breaks.
//!
//! It is independent of the code it checks. It knows the records of a history and the numbered
//! invariants, nothing of clients, keepers or stores. [`HistoryIndex`] assigns records to acquires and
//! collects the grants. Each check in [`invariant`] then reads the index and returns [`Finding`]s.
//!
//! An acquire without an answer may have been granted at any time after it was sent. It can excuse a
//! lease that was found, and it never proves anything. Every check sorts and sweeps: O(n log n) in the
//! number of records.

mod attempt;
mod event;
mod index;

pub use attempt::{Attempt, ClassTerms, GrantedLease, HoldClaim, TargetWrite, WorkReport};
#[cfg(feature = "drills")]
pub(crate) use event::granted_fence;
pub use index::HistoryIndex;

use crate::history::History;
use crate::invariant;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Number of the invariant, such as `I1`.
    pub invariant: &'static str,
    /// When it shows, in nanoseconds of the host's boot clock.
    pub at: u64,
    /// The lock's name, or `-`.
    pub name: String,
    /// Description for people.
    pub why: String,
}

/// The oracle's result for a history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// In order of time; at most [`MAX_FINDINGS`] of each invariant.
    pub findings: Vec<Finding>,
    /// Number of findings beyond that limit.
    pub dropped_findings: usize,
    /// Records are missing. Findings are still valid, but *clean* is worthless.
    pub incomplete: bool,
    /// The first thing that is missing.
    pub missing: Option<String>,
    /// The invariants that this history can show. It says nothing about the others.
    pub judged_invariants: Vec<&'static str>,
    /// Number of records.
    pub records: usize,
    /// Number of grants.
    pub grants: usize,
    /// Number of writes that the target applied.
    pub applied: usize,
    /// Number of items examined, over all passes: the work, counted instead of timed.
    pub work_count: u64,
}

/// The most findings kept per invariant: a broken store breaks the same promise thousands of times.
pub const MAX_FINDINGS: usize = 100;

impl Judgement {
    /// No promise is broken and no record is missing.
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
    let case = HistoryIndex::new(&history.records);
    let (mut findings, mut more) = (Vec::new(), 0);
    for (number, check) in invariant::ALL_INVARIANTS {
        let mut found = check(&case);
        debug_assert!(found.iter().all(|found| found.invariant == *number));
        found.sort_by_key(|found| found.at);
        more += found.len().saturating_sub(MAX_FINDINGS);
        // Per invariant, so that one broken promise does not hide another.
        found.truncate(MAX_FINDINGS);
        findings.append(&mut found);
    }
    findings.sort_by_key(|found| found.at);
    let lacks = history.missing().or_else(|| case.missing());
    Judgement {
        findings,
        dropped_findings: more,
        incomplete: lacks.is_some(),
        missing: lacks,
        judged_invariants: invariant::judged_invariants(&case),
        records: history.records.len(),
        grants: case.grants.len(),
        applied: case.applied.len(),
        work_count: case.work_count(),
    }
}
