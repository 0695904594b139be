//! I9: the work's own result is never replaced by a lock error, except by *lost* in a `fence` class,
//! which carries the result. Where the history shows the store: an abandoned hold is neither renewed
//! nor released any more, because its caller was told that it has ended.

use crate::history::StoreVerb;
use crate::oracle::{Attempt, Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        found.extend(request_after_abandonment(case, attempt));
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

fn request_after_abandonment(case: &HistoryIndex<'_>, attempt: &Attempt<'_>) -> Option<Finding> {
    // A shutdown abandons its holds and then releases their leases.
    let mut events = attempt.events.iter();
    let (abandoned, _) = events
        .find(|(_, event)| event.event == "abandoned" && event.detail.as_deref() != Some("shutdown"))?;
    let of_lease =
        attempt.granted.iter().filter_map(|(fence, _)| case.lease_executions.get(&(attempt.name, *fence)));
    let mut later = of_lease
        .flatten()
        .filter(|(_, executed)| executed.own && executed.client == attempt.who && executed.sent > *abandoned);
    case.count_work(attempt.events.len() + attempt.granted.len());
    let (at, executed) =
        later.find(|(_, executed)| matches!(executed.request, StoreVerb::Renew | StoreVerb::Release))?;
    Some(Finding {
        invariant: "I9",
        at: *at,
        name: attempt.name.to_owned(),
        why: format!(
            "{} (acquire {}): {:?} of a hold that was abandoned",
            attempt.who, attempt.number, executed.request
        ),
    })
}
