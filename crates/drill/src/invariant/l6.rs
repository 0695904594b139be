//! L6: waiters of one name are served in order, give or take a bounded number of overtakings.
//!
//! Judged after the calm and before the next fault, where nobody loses a place: a waiter that is not told when its turn
//! comes lets the next one in.

use std::collections::BTreeMap;

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
        // When those asked who are in already, in order.
        let mut inside: Vec<u64> = Vec::new();
        for (at, attempt) in &granted {
            let place = inside.partition_point(|sent| *sent <= attempt.sent);
            let before = inside.len() - place;
            inside.insert(place, attempt.sent);
            if before > MOST_OVERTAKINGS {
                found.push(Finding {
                    invariant: "L6",
                    at: *at,
                    name: name.to_owned(),
                    why: format!(
                        "{} (acquire {}) was overtaken by {before} that had asked later",
                        attempt.who, attempt.number
                    ),
                });
            }
        }
    }
    found
}
