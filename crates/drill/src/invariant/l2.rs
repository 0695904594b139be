//! L2: with every notification dropped, a waiter is granted the name within one poll of when it could.
//!
//! Judged after the calm, where no other fault interferes. A waiter could be granted the name when it
//! had asked and all earlier holders had begun to release.

use std::collections::BTreeMap;

use crate::history::RecordedOutcome;
use crate::invariant::format_ms;
use crate::oracle::{Attempt, Finding, HistoryIndex};

// A poll takes one second at most; the rest is the way to the store and back.
const MAX_POLL_DELAY_NANOS: u64 = 1_250_000_000;

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let Some(calm) = case.calm else {
        return Vec::new();
    };
    let mut names: BTreeMap<&str, Vec<(u64, &Attempt<'_>)>> = BTreeMap::new();
    for attempt in case.all_attempts().filter(|attempt| attempt.sent >= calm) {
        if let Some((at, RecordedOutcome::Held, _)) = attempt.answered {
            names.entry(attempt.name).or_default().push((at, attempt));
        }
    }
    let mut found = Vec::new();
    for (name, mut granted) in names {
        granted.sort_by_key(|(at, _)| *at);
        let mut free = calm;
        for (at, attempt) in granted {
            let could = free.max(attempt.sent);
            if at > could.saturating_add(MAX_POLL_DELAY_NANOS) {
                found.push(Finding {
                    invariant: "L2",
                    at,
                    name: name.to_owned(),
                    why: format!(
                        "{} (acquire {}) got in {} after it could",
                        attempt.who,
                        attempt.number,
                        format_ms(at - could)
                    ),
                });
            }
            // The release itself may take time; from its start on the next waiter can be served.
            free = attempt.releasing.unwrap_or(at).max(free);
        }
    }
    found
}
