//! I5: in a `fence` class no work runs past the deadline. In no class does a proof reach further than
//! a confirmed lease allows.
//!
//! A claim must lie before its own deadline and before the hold was abandoned. The time it takes for
//! proven must be covered by a request that was sent before and confirmed. A renewal counts from its
//! sending. A grant counts at the latest from its event, because a history does not show how long an
//! acquire waited.
//!
//! Where the history shows the store, a proof must not reach beyond the lease that the store has. Nor
//! may work go on with a lease that the client was told is not its own.

use leasehold_core::Fence;

use crate::invariant::{MAX_EVENT_DELAY_NANOS, format_ms};
use crate::oracle::{Attempt, Finding, HistoryIndex, HoldClaim};

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all_attempts() {
        let Some(terms) = case.widest_terms(attempt) else {
            continue;
        };
        let confirmed = confirmed_requests(attempt);
        let abandoned = attempt.first_event_at("abandoned");
        case.count_work(attempt.claims.len() + confirmed.len());
        for claim in &attempt.claims {
            let mut broken = |why| {
                found.push(Finding {
                    invariant: "I5",
                    at: claim.at,
                    name: attempt.name.to_owned(),
                    why: format!("{} (acquire {}) {why}", attempt.who, attempt.number),
                });
            };
            if !terms.continues && claim.at >= claim.until {
                broken(format!(
                    "worked {} past its deadline",
                    format_ms(claim.at.saturating_sub(claim.until))
                ));
                continue;
            }
            if let Some(abandoned) = abandoned.filter(|at| !terms.continues && *at < claim.at) {
                broken(format!("worked {} after it was abandoned", format_ms(claim.at - abandoned)));
                continue;
            }
            // A class that fences treats all of its time as proven.
            let proven = claim
                .proven_until
                .map(|proven| if terms.continues { proven } else { proven.max(claim.until) });
            let Some(proven) = proven else { continue };
            if let Some(why) =
                claim.fence.and_then(|fence| contradicted_by_store(case, attempt, claim, fence, proven))
            {
                broken(why);
                continue;
            }
            let known = confirmed
                .partition_point(|(sent, _)| *sent <= claim.at.saturating_add(MAX_EVENT_DELAY_NANOS));
            let best = confirmed.get(..known).and_then(<[_]>::last).map(|(_, best)| *best);
            let covered = best.map(|best| best.saturating_add(terms.usable));
            if covered.is_none_or(|covered| proven > covered) {
                broken(match covered {
                    Some(covered) => format!(
                        "believed in a deadline {} later than its last confirmed lease allows",
                        format_ms(proven - covered)
                    ),
                    None => "believed in a lease that nothing had confirmed".to_owned(),
                });
            }
        }
    }
    found
}

fn contradicted_by_store(
    case: &HistoryIndex<'_>,
    attempt: &Attempt<'_>,
    claim: &HoldClaim,
    fence: Fence,
    proven: u64,
) -> Option<String> {
    let told = case.not_owned_at.get(&(attempt.who, attempt.name, fence));
    if let Some(told) = told.filter(|told| **told < claim.at) {
        return Some(format!(
            "worked {} after it was told that the lease is not its own",
            format_ms(claim.at - told)
        ));
    }
    match case.lease_end(attempt.name, fence, claim.at)? {
        Some(expires) if proven <= expires => None,
        Some(expires) => Some(format!(
            "believed in a deadline {} later than the end of its lease",
            format_ms(proven - expires)
        )),
        None => Some(format!("worked with the lease {fence}, which the store had ended")),
    }
}

/// Confirmed requests in order: the earliest time of sending, and the best start of a lease so far.
fn confirmed_requests(attempt: &Attempt<'_>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = attempt
        .events
        .iter()
        .filter_map(|(at, event)| match event.event.as_str() {
            "renewed" => {
                let sent = at.saturating_sub(event.span.unwrap_or(0));
                Some((sent, sent))
            }
            "acquired" => Some((attempt.sent, *at)),
            // No work could rely on it before. A hold that is proven again without a new grant was renewed,
            // and has a `renewed` event of its own.
            "healed" => Some((*at, *at)),
            "proven_again" if event.detail.as_deref() == Some("retaken") => Some((*at, *at)),
            _ => None,
        })
        .collect();
    all.sort_unstable();
    let mut best = 0;
    for (_, counts) in &mut all {
        best = best.max(*counts);
        *counts = best;
    }
    all
}
