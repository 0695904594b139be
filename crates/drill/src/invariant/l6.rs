//! L6: waiters of one name are served in order, give or take a bounded number of overtakings.
//!
//! Judged after the calm and before the next fault, where nobody loses a place: a waiter that is not told when its turn
//! comes lets the next one in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::history::Answer;
use crate::oracle::{Attempt, Case, Finding};

/// How many that asked later may get in before.
const MOST_OVERTAKINGS: usize = 1;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(calm) = case.calm else {
        return Vec::new();
    };
    let mut names: BTreeMap<&str, Vec<(u64, &Attempt<'_>)>> = BTreeMap::new();
    let next = case.faults.partition_point(|at| *at <= calm);
    let until = case.faults.get(next).copied().unwrap_or(u64::MAX);
    for attempt in case.all().filter(|attempt| (calm..until).contains(&attempt.sent)) {
        if let Some((at, Answer::Held, _)) = attempt.answered {
            names.entry(attempt.name).or_default().push((at, attempt));
        }
    }
    let mut found = Vec::new();
    for (name, mut granted) in names {
        granted.sort_by_key(|(at, _)| *at);
        // Of those who are in already, the latest to have asked: the first of them when at least one more than the bound did
        // so after whoever comes next.
        let mut latest: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        case.looked(granted.len());
        for (at, attempt) in &granted {
            let full = latest.len() > MOST_OVERTAKINGS;
            if full && latest.peek().is_some_and(|Reverse(sent)| *sent > attempt.sent) {
                found.push(Finding {
                    invariant: "L6",
                    at: *at,
                    name: name.to_owned(),
                    why: format!(
                        "{} (acquire {}) was overtaken by more than {MOST_OVERTAKINGS} that had asked later",
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
