//! L3: cancelled or crashed callers leave nothing. Tasks, waiters, undos and queue entries return to
//! the baseline.

use crate::oracle::{Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let left = case.leftovers.iter().filter(|(.., count)| *count > 0);
    left.map(|(at, who, kind, count)| Finding {
        invariant: "L3",
        at: *at,
        name: "-".to_owned(),
        why: format!("{who}: {count} {kind} left when everything had been given back"),
    })
    .collect()
}
