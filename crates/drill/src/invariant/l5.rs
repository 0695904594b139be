//! L5: after faults end, everything heals without a restart, and every acquire is granted in turn.
//!
//! After the calm, an acquire that is refused or never answered shows a stuck breaker, waiter or lease.

use crate::history::RecordedOutcome;
use crate::oracle::{Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let Some(calm) = case.calm else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        let (at, why) = match attempt.answered {
            Some((_, RecordedOutcome::Held, _)) => continue,
            Some((at, answer, _)) if attempt.sent >= calm => (at, format!("was answered {answer:?}")),
            // A killed client's acquire may stay unanswered; any other must end.
            None if !case.killed_at.contains_key(attempt.who) => (case.end, "was never answered".to_owned()),
            _ => continue,
        };
        found.push(Finding {
            invariant: "L5",
            at,
            name: attempt.name.to_owned(),
            why: format!(
                "{} (acquire {}) {why} although nothing is wrong any more",
                attempt.who, attempt.number
            ),
        });
    }
    found
}
