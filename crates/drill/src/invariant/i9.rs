//! I9: the work's own result is never replaced by a lock-keeping error, except by *lost* in a `fence` class, which
//! carries it.

use crate::oracle::{Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all() {
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
                Some(other) => format!("the work returned {value}, the caller was told {other}"),
                None => format!("the work returned {value}, the caller was not told"),
            });
        } else if attempt.returned.is_none() && !told.lost {
            broken("the work has no result and the caller was told of no loss".to_owned());
        }
        // `max_hold` and a shutdown end a hold of any class; both abandon it.
        let continues = case.terms(attempt).is_some_and(|terms| terms.continues);
        if told.lost && continues && attempt.first("abandoned").is_none() {
            broken("a class that continues was told that its lease is lost".to_owned());
        }
    }
    found
}
