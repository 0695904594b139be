//! L2: with every notification dropped, a waiter gets in within one poll of when it could.
//!
//! Judged where nothing else is wrong: after the calm. A waiter could get in when it had asked and everyone who was
//! there before had begun to give the lease back.

use std::collections::BTreeMap;

use crate::history::Answer;
use crate::invariant::ms;
use crate::oracle::{Attempt, Case, Finding};

/// One poll is a second at most; the rest is the way to the store and back.
const POLL: u64 = 1_250_000_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(calm) = case.calm else {
        return Vec::new();
    };
    let mut names: BTreeMap<&str, Vec<(u64, &Attempt<'_>)>> = BTreeMap::new();
    for attempt in case.all().filter(|attempt| attempt.sent >= calm) {
        if let Some((at, Answer::Held, _)) = attempt.answered {
            names.entry(attempt.name).or_default().push((at, attempt));
        }
    }
    let mut found = Vec::new();
    for (name, mut granted) in names {
        granted.sort_by_key(|(at, _)| *at);
        let mut free = calm;
        for (at, attempt) in granted {
            let could = free.max(attempt.sent);
            if at > could.saturating_add(POLL) {
                found.push(Finding {
                    invariant: "L2",
                    at,
                    name: name.to_owned(),
                    why: format!(
                        "{} (acquire {}) got in {} after it could",
                        attempt.who,
                        attempt.number,
                        ms(at - could)
                    ),
                });
            }
            free = attempt.releasing.unwrap_or(at).max(free);
        }
    }
    found
}
