//! I8: unavailable work does not run in a fail-closed class; in a fail-open class it runs, is marked, and is counted
//! exactly once.

use crate::history::Answer;
use crate::invariant::TOLD;
use crate::oracle::{Attempt, Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all() {
        // The class in force when it failed decides; when that was, within its time, only the client knows.
        let Some((once, always)) = case.fail_open(attempt) else {
            continue;
        };
        let mut broken = |at, why: &str| {
            found.push(Finding {
                invariant: "I8",
                at,
                name: attempt.name.to_owned(),
                why: format!("{} (acquire {}) {why}", attempt.who, attempt.number),
            });
        };
        let Some((at, answer, fence)) = attempt.answered else {
            continue;
        };
        match answer {
            Answer::Unavailable | Answer::Busy | Answer::Closed | Answer::Cancelled | Answer::Unknown => {
                if let Some(claim) = attempt.claims.first() {
                    broken(claim.at, "worked although its acquire was refused");
                }
                if answer == Answer::Unavailable && always {
                    broken(at, "was refused although its class is fail-open");
                }
            }
            Answer::LocalOnly => {
                if !once {
                    broken(at, "runs without a lease although its class is fail-closed");
                }
                if fence.is_some() {
                    broken(at, "runs without a lease and shows a fence");
                }
                if count(attempt, "fell_back") != 1 {
                    broken(at, "runs without a lease and was not counted exactly once");
                }
                // A lease that healed may be seen by the worker a little before its event is written down.
                let healed = attempt.first("healed");
                let early = attempt.claims.iter().find(|claim| {
                    claim.proven_until.is_some()
                        && healed.is_none_or(|healed| claim.at.saturating_add(TOLD) < healed)
                });
                if let Some(early) = early {
                    broken(early.at, "took its local lock for a distributed one");
                }
            }
            Answer::Held => {
                if count(attempt, "fell_back") > 0 {
                    broken(at, "fell back and says that it holds a lease");
                }
            }
        }
    }
    found
}

fn count(attempt: &Attempt<'_>, event: &str) -> usize {
    attempt
        .events
        .iter()
        .filter(|(_, seen)| seen.event == event)
        .count()
}
