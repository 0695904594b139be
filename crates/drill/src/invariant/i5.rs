//! I5: in a `fence` class no work proceeds past the deadline, and in no class a proof reaches further than a confirmed
//! lease allows.
//!
//! A claim must lie before its own deadline and before the hold was abandoned. What it takes for proven must be covered by
//! a request that was sent before and confirmed: a renewal counts from when it was sent, a grant at the latest from when
//! its event came (how long of an acquire was waiting, a history does not tell).

use crate::invariant::{TOLD, ms};
use crate::oracle::{Attempt, Case, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for attempt in case.all() {
        let Some(terms) = case.terms(attempt) else {
            continue;
        };
        let confirmed = confirmed(attempt);
        let abandoned = attempt.first("abandoned");
        case.looked(attempt.claims.len() + confirmed.len());
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
                    ms(claim.at.saturating_sub(claim.until))
                ));
                continue;
            }
            if let Some(abandoned) = abandoned.filter(|at| !terms.continues && *at < claim.at) {
                broken(format!(
                    "worked {} after it was abandoned",
                    ms(claim.at - abandoned)
                ));
                continue;
            }
            // Who fences takes all of its time for proven.
            let proven = claim.proven_until.map(|proven| {
                if terms.continues {
                    proven
                } else {
                    proven.max(claim.until)
                }
            });
            let Some(proven) = proven else { continue };
            let known = confirmed.partition_point(|(sent, _)| *sent <= claim.at.saturating_add(TOLD));
            let best = confirmed
                .get(..known)
                .and_then(<[_]>::last)
                .map(|(_, best)| *best);
            let covered = best.map(|best| best.saturating_add(terms.usable));
            if covered.is_none_or(|covered| proven > covered) {
                broken(match covered {
                    Some(covered) => format!(
                        "believed in a deadline {} later than its last confirmed lease allows",
                        ms(proven - covered)
                    ),
                    None => "believed in a lease that nothing had confirmed".to_owned(),
                });
            }
        }
    }
    found
}

/// By when a confirmed request was sent at the earliest: the moment from which its lease counts at the latest, and the
/// best of those so far.
fn confirmed(attempt: &Attempt<'_>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = attempt
        .events
        .iter()
        .filter_map(|(at, event)| match event.event.as_str() {
            "renewed" => {
                let sent = at.saturating_sub(event.span.unwrap_or(0));
                Some((sent, sent))
            }
            "acquired" => Some((attempt.sent, *at)),
            // Nobody could work on its strength before. What is proven again without being granted was renewed, which is
            // told beside it.
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
