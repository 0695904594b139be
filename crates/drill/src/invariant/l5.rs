//! L5: after faults end, everything heals without a restart: every acquire is granted in its turn.
//!
//! After the calm an acquire that is refused, or is never answered, shows a breaker, a waiter or a lease that is stuck.

use crate::history::Answer;
use crate::oracle::{Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(calm) = case.calm else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for attempt in case.all() {
        let (at, why) = match attempt.answered {
            Some((_, Answer::Held, _)) => continue,
            Some((at, answer, _)) if attempt.sent >= calm => (at, format!("was answered {answer:?}")),
            None if !case.killed.contains_key(attempt.who) => (case.end, "was never answered".to_owned()),
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
