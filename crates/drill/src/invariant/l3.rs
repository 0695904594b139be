//! L3: cancelled or crashed callers leave nothing: tasks, waiters, undos and places in the process return to the baseline.

use crate::oracle::{Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let left = case.remains.iter().filter(|(.., count)| *count > 0);
    left.map(|(at, who, kind, count)| Finding {
        invariant: "L3",
        at: *at,
        name: "-".to_owned(),
        why: format!("{who}: {count} {kind} left when everything had been given back"),
    })
    .collect()
}
