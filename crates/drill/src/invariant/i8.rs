//! I8: unavailable work does not run in a fail-closed class. In a fail-open class it runs, is marked,
//! and is counted exactly once.

use crate::history::RecordedOutcome;
use crate::invariant::MAX_EVENT_DELAY_NANOS;
use crate::oracle::{Attempt, Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        // The class in force at the failure decides. Only the client knows when that was, so every class
        // in force during the acquire is allowed.
        let Some((once, always)) = case.was_fail_open(attempt) else {
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
            RecordedOutcome::Unavailable
            | RecordedOutcome::Busy
            | RecordedOutcome::Closed
            | RecordedOutcome::Cancelled
            | RecordedOutcome::Unknown => {
                if let Some(claim) = attempt.claims.first() {
                    broken(claim.at, "worked although its acquire was refused");
                }
                if answer == RecordedOutcome::Unavailable && always {
                    broken(at, "was refused although its class is fail-open");
                }
            }
            RecordedOutcome::LocalOnly => {
                if !once {
                    broken(at, "runs without a lease although its class is fail-closed");
                }
                if fence.is_some() {
                    broken(at, "runs without a lease and shows a fence");
                }
                if count_events_named(attempt, "fell_back") != 1 {
                    broken(at, "runs without a lease and was not counted exactly once");
                }
                // A worker may see a healed lease slightly before the event is recorded.
                let healed = attempt.first_event_at("healed");
                let early = attempt.claims.iter().find(|claim| {
                    claim.proven_until.is_some()
                        && healed.is_none_or(|healed| claim.at.saturating_add(MAX_EVENT_DELAY_NANOS) < healed)
                });
                if let Some(early) = early {
                    broken(early.at, "took its local lock for a distributed one");
                }
            }
            RecordedOutcome::Held => {
                if count_events_named(attempt, "fell_back") > 0 {
                    broken(at, "fell back and says that it holds a lease");
                }
            }
        }
    }
    found
}

fn count_events_named(attempt: &Attempt<'_>, event: &str) -> usize {
    attempt.events.iter().filter(|(_, seen)| seen.event == event).count()
}
