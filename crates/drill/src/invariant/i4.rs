//! I4: only the token's owner renews or releases. Late, repeated and foreign requests change nothing.
//! Nothing revives an expired lease, and only a release shortens a live one.

use std::collections::HashSet;

use crate::history::{StoreExecution, StoreVerb};
use crate::oracle::{Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    // Handed over and not yet confirmed: the confirmation starts the owner's own TTL, which may be shorter.
    let mut unclaimed = HashSet::new();
    case.count_work(case.executions.len());
    for (at, executed) in &case.executions {
        let confirms = executed.request == StoreVerb::Acquire
            && executed.own
            && executed.before.is_some_and(|lease| unclaimed.remove(&(&executed.name, lease.fence)));
        if let Some(why) = broken_rule(executed, confirms) {
            let why = format!("{why}: {:?} to {:?}", executed.before, executed.after);
            found.push(Finding { invariant: "I4", at: *at, name: executed.name.clone(), why });
        }
        let replaced =
            executed.after.filter(|after| executed.before.is_none_or(|was| was.fence != after.fence));
        if let Some(lease) = replaced.filter(|_| executed.request != StoreVerb::Acquire) {
            unclaimed.insert((&executed.name, lease.fence));
        }
    }
    found
}

fn broken_rule(executed: &StoreExecution, confirms: bool) -> Option<&'static str> {
    let StoreExecution { request, own, done, fence, before, after, .. } = executed;
    let changed = before != after;
    match (request, before) {
        (StoreVerb::Break, Some(before)) => {
            (changed && *fence != Some(before.fence)).then_some("an operator ended another lease")
        }
        (StoreVerb::Renew, None) if *done => Some("a renewal revived a lease that had expired"),
        (StoreVerb::Renew, Some(before)) if !own || *fence != Some(before.fence) => match (done, changed) {
            (_, true) => Some("a renewal changed a lease that is not its own"),
            (true, _) => Some("a renewal of another lease was answered as done"),
            _ => None,
        },
        (StoreVerb::Release | StoreVerb::Undo, _) if *done && !own => {
            Some("a release of another lease was answered as done")
        }
        (StoreVerb::Acquire, Some(_)) if *done && !own => Some("granted over a live lease"),
        (_, Some(_)) if !own && changed => Some("a foreign request changed a lease"),
        (StoreVerb::Acquire | StoreVerb::Renew, Some(before)) if *own => {
            let kept = after.is_some_and(|after| {
                after.fence == before.fence && (confirms || after.expires >= before.expires)
            });
            (!kept).then_some("a request cut its own lease")
        }
        (StoreVerb::Acquire, None) => None,
        (_, None) if after.is_some() => Some("a request other than an acquire made a lease"),
        _ => None,
    }
}
