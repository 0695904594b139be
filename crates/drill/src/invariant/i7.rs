//! I7: an unknown outcome is never reported as success nor as definite failure.
//!
//! *Released* and *already lost* mean that no lease of this hold is left. *Already lost* also means that
//! no release of this hold was executed. *Debt* and *kept* say by when the lease is over. Requests that
//! arrive after their sender gave up on them, or reach a daemon twice, can extend it; such leases are not
//! judged. Nor is *already lost* if the release reached a daemon twice: the copy's response says
//! *released*, and its sender never reads it.
//!
//! An acquire that may have been granted and is not undone leaves a lease, which I6 and L3 find.

use leasehold_core::Fence;

use crate::history::{RecordedRelease, StoreVerb};
use crate::invariant::format_ms;
use crate::oracle::{Attempt, Finding, HistoryIndex};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        let Some((at, outcome, until)) = attempt.release_answered else {
            continue;
        };
        case.count_work(attempt.granted.len());
        for (fence, _) in &attempt.granted {
            let why = match outcome {
                RecordedRelease::Released => lease_left(case, attempt, *fence, at),
                RecordedRelease::AlreadyLost => lease_left(case, attempt, *fence, at)
                    .or_else(|| ended_by_itself(case, attempt, *fence, at)),
                RecordedRelease::Debt | RecordedRelease::Kept => {
                    until.and_then(|until| outlives(case, attempt, *fence, until))
                }
                RecordedRelease::Skipped => None,
            };
            if let Some(why) = why {
                found.push(Finding {
                    invariant: "I7",
                    at,
                    name: attempt.name.to_owned(),
                    why: format!("{} (acquire {}): {outcome:?}, but {why}", attempt.who, attempt.number),
                });
            }
        }
    }
    found
}

fn lease_left(case: &HistoryIndex<'_>, attempt: &Attempt<'_>, fence: Fence, at: u64) -> Option<String> {
    let expires = case.lease_end(attempt.name, fence, at)??;
    (expires > at).then(|| format!("its lease {fence} is there for another {}", format_ms(expires - at)))
}

fn ended_by_itself(case: &HistoryIndex<'_>, attempt: &Attempt<'_>, fence: Fence, at: u64) -> Option<String> {
    let of_lease = case.lease_executions.get(&(attempt.name, fence))?;
    case.count_work(of_lease.len());
    let own = of_lease.iter().any(|(executed_at, executed)| {
        *executed_at <= at
            && executed.own
            && !executed.repeated
            && matches!(executed.request, StoreVerb::Release | StoreVerb::Undo)
            && executed.before.is_some_and(|lease| lease.fence == fence)
            && executed.after.is_none_or(|lease| lease.fence != fence)
    });
    own.then(|| format!("its own release had ended the lease {fence}"))
}

/// Whether the store kept the lease for longer than the caller was told.
fn outlives(case: &HistoryIndex<'_>, attempt: &Attempt<'_>, fence: Fence, until: u64) -> Option<String> {
    let of_lease = case.lease_executions.get(&(attempt.name, fence))?;
    case.count_work(of_lease.len());
    if of_lease.iter().any(|(_, executed)| executed.stale || executed.repeated) {
        return None;
    }
    // What a request set, not what it found: a store whose clock was stepped back keeps every lease longer.
    let set = of_lease.iter().filter_map(|(_, executed)| {
        let requested = matches!(executed.request, StoreVerb::Acquire | StoreVerb::Renew);
        let set = executed.after.filter(|after| requested && after.fence == fence)?;
        let found = executed.before.filter(|before| before.fence == fence);
        found.is_none_or(|found| found.expires < set.expires).then_some(set.expires)
    });
    let late = set.max()?.checked_sub(until).filter(|late| *late > 0)?;
    Some(format!("its lease {fence} ends {} later than it says", format_ms(late)))
}
