//! L6: waiters of one name are served in order, up to a bounded number of overtakings.
//!
//! Judged between the calm and the next fault, where no waiter loses its queue entry. A waiter that
//! misses its wake-up lets the next one in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::history::RecordedOutcome;
use crate::oracle::{Attempt, Finding, HistoryIndex};

// How many waiters that asked later may be granted the name first.
const MAX_OVERTAKINGS: usize = 1;

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let Some(calm) = case.calm else {
        return Vec::new();
    };
    let mut names: BTreeMap<&str, Vec<(u64, &Attempt<'_>)>> = BTreeMap::new();
    let next = case.faults.partition_point(|at| *at <= calm);
    let until = case.faults.get(next).copied().unwrap_or(u64::MAX);
    for attempt in case.all_attempts().filter(|attempt| (calm..until).contains(&attempt.sent)) {
        if let Some((at, RecordedOutcome::Held, _)) = attempt.answered {
            names.entry(attempt.name).or_default().push((at, attempt));
        }
    }
    let mut found = Vec::new();
    for (name, mut granted) in names {
        granted.sort_by_key(|(at, _)| *at);
        // A min-heap of the latest requests among those already granted, one more than the bound. If its
        // smallest is later than this request, more waiters overtook it than allowed.
        let mut latest: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        case.count_work(granted.len());
        for (at, attempt) in &granted {
            let full = latest.len() > MAX_OVERTAKINGS;
            if full && latest.peek().is_some_and(|Reverse(sent)| *sent > attempt.sent) {
                found.push(Finding {
                    invariant: "L6",
                    at: *at,
                    name: name.to_owned(),
                    why: format!(
                        "{} (acquire {}) was overtaken by more than {MAX_OVERTAKINGS} that had asked later",
                        attempt.who, attempt.number
                    ),
                });
            }
            latest.push(Reverse(attempt.sent));
            if full {
                latest.pop();
            }
        }
    }
    found
}
