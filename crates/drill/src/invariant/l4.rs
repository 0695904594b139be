//! L4: a holder learns of its loss by its deadline, even if the store is silent.
//!
//! The last claim and the last confirmed request give the latest deadline that a hold can have. By
//! then it must be released or abandoned, unless the process was killed before or is paused. The
//! history says how late that may be recorded: zero in simulated time.

use crate::history::RecordedOutcome;
use crate::invariant::format_ms;
use crate::oracle::{Attempt, Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        let Some(terms) = case.widest_terms(attempt).filter(|terms| !terms.continues) else {
            continue;
        };
        case.count_work(attempt.claims.len() + attempt.events.len());
        let held = matches!(attempt.answered, Some((_, RecordedOutcome::Held, _)));
        let Some(last) = latest_deadline(attempt, terms.usable).filter(|_| held) else {
            continue;
        };
        // A paused process can react only after it continues.
        let by = case.paused_at(attempt.who, last).unwrap_or(last);
        let by = by.saturating_add(case.slack);
        if case.killed_at.get(attempt.who).is_some_and(|kill| *kill <= by) {
            continue;
        }
        // If the client recorded nothing more, it is unknown whether it learnt of the loss.
        let heard = case.last_record_at.get(attempt.who).copied().unwrap_or(0);
        let learnt = hold_ended_at(attempt).unwrap_or(heard);
        if learnt > by {
            found.push(Finding {
                invariant: "L4",
                at: by,
                name: attempt.name.to_owned(),
                why: format!(
                    "{} (acquire {}) had not learnt of its loss {} after its last deadline",
                    attempt.who,
                    attempt.number,
                    format_ms(learnt - last)
                ),
            });
        }
    }
    found
}

/// When the hold ended for its holder, by any of the records.
fn hold_ended_at(attempt: &Attempt<'_>) -> Option<u64> {
    let told = attempt.reported.map(|ending| ending.at);
    let given_back =
        ["released", "kept", "already_lost", "debt"].iter().filter_map(|event| attempt.first_event_at(event));
    attempt.claims_end().into_iter().chain(told).chain(given_back).min()
}

/// An upper bound of every deadline of this hold.
fn latest_deadline(attempt: &Attempt<'_>, usable: u64) -> Option<u64> {
    let claimed = attempt.claims.iter().map(|claim| claim.until);
    let confirmed = attempt.events.iter().filter_map(|(at, event)| {
        let sent = match event.event.as_str() {
            "renewed" => at.saturating_sub(event.span.unwrap_or(0)),
            "acquired" | "healed" | "proven_again" => *at,
            _ => return None,
        };
        Some(sent.saturating_add(usable))
    });
    claimed.chain(confirmed).max()
}
