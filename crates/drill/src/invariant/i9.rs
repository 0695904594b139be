//! I9: the work's own result is never replaced by a lock error, except by *lost* in a `fence` class,
//! which carries the result.

use crate::oracle::{Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        let Some(told) = attempt.reported else { continue };
        let mut broken = |why: String| {
            found.push(Finding {
                invariant: "I9",
                at: told.at,
                name: attempt.name.to_owned(),
                why: format!("{} (acquire {}): {why}", attempt.who, attempt.number),
            });
        };
        if let Some(value) = attempt.returned.filter(|value| told.value != Some(*value)) {
            broken(match told.value {
                Some(other) => format!("the work returned {value}, the caller got {other}"),
                None => format!("the work returned {value}, the caller got nothing"),
            });
        } else if attempt.returned.is_none() && !told.lost {
            broken("the work has no result, and no loss was reported to the caller".to_owned());
        }
        // `max_hold` and a shutdown end a hold of any class; both abandon it.
        let continues = case.widest_terms(attempt).is_some_and(|terms| terms.continues);
        if told.lost && continues && attempt.first_event_at("abandoned").is_none() {
            broken("a lease loss was reported to the caller of a class that continues".to_owned());
        }
    }
    found
}
