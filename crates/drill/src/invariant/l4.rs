//! L4: a holder learns of its loss by its deadline, even if the store is silent.
//!
//! The latest deadline that a hold can have is known from its last claim and its last confirmed request. By then it has
//! been given back or abandoned, unless the process was killed before or stood still. How late that may be seen, the history
//! says: not at all where time is simulated.

use crate::history::Answer;
use crate::invariant::ms;
use crate::oracle::{Attempt, Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all() {
        let Some(terms) = case.terms(attempt).filter(|terms| !terms.continues) else {
            continue;
        };
        case.looked(attempt.claims.len() + attempt.events.len());
        let held = matches!(attempt.answered, Some((_, Answer::Held, _)));
        let Some(last) = latest(attempt, terms.usable).filter(|_| held) else {
            continue;
        };
        let by = case.paused_at(attempt.who, last).unwrap_or(last);
        let by = by.saturating_add(case.slack);
        if case.killed.get(attempt.who).is_some_and(|kill| *kill <= by) {
            continue;
        }
        // A client of which nothing more is heard may have learnt of it or not: nobody knows.
        let heard = case.heard.get(attempt.who).copied().unwrap_or(0);
        let learnt = ended(attempt).unwrap_or(heard);
        if learnt > by {
            found.push(Finding {
                invariant: "L4",
                at: by,
                name: attempt.name.to_owned(),
                why: format!(
                    "{} (acquire {}) had not learnt of its loss {} after its last deadline",
                    attempt.who,
                    attempt.number,
                    ms(learnt - last)
                ),
            });
        }
    }
    found
}

/// When the hold was over for its holder, one way or another.
fn ended(attempt: &Attempt<'_>) -> Option<u64> {
    let told = attempt.reported.map(|ending| ending.at);
    let given_back = ["released", "kept", "already_lost", "debt"]
        .iter()
        .filter_map(|event| attempt.first(event));
    attempt.over().into_iter().chain(told).chain(given_back).min()
}

/// No deadline of this hold can be later.
fn latest(attempt: &Attempt<'_>, usable: u64) -> Option<u64> {
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
