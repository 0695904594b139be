//! I6: an acquire that did not end in a hold leaves no lease behind once its undo was possible, and none past its TTL.
//!
//! Leases are what the director saw in the store. When everything has ended and every TTL is over, there must be none.
//! Before that, a lease with a fence that nobody was told must belong to an acquire that is under way, unanswered, or
//! was answered less than a TTL ago. After the calm every undo has been possible, so only the unanswered count.

use std::collections::HashSet;

use crate::history::Answer;
use crate::invariant::ms;
use crate::oracle::{Case, Finding};

/// Clocks and the store's own rounding.
const MARGIN: u64 = 100_000_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let known: HashSet<_> = case
        .grants
        .iter()
        .map(|grant| (grant.name, grant.fence))
        .collect();
    let mut found = Vec::new();
    for (at, name, holder, fence) in &case.leases {
        let Some(attempts) = case.attempts.get(holder) else {
            continue;
        };
        let mut broken = |why| {
            found.push(Finding {
                invariant: "I6",
                at: *at,
                name: (*name).to_owned(),
                why,
            });
        };
        if case.quiet.is_some_and(|quiet| quiet <= *at) {
            broken(format!(
                "a lease of {holder} outlives everyone and every time to live"
            ));
            continue;
        }
        if fence.is_some_and(|fence| known.contains(&(*name, fence))) {
            continue;
        }
        let excused = attempts
            .iter()
            .filter(|attempt| attempt.name == *name && attempt.sent <= *at)
            .any(|attempt| match attempt.answered {
                // Its own event may be on its way; an acquire without an answer may have been granted at any time.
                None | Some((_, Answer::Held | Answer::LocalOnly, _)) => true,
                // Nobody can undo for a client that was killed.
                Some(_) if case.killed.contains(holder) => true,
                // What the store has forgotten includes that an acquire was undone.
                Some((answered, ..)) if case.forgot_between(attempt.sent, answered.max(*at)) => true,
                Some(_) if case.calm.is_some_and(|calm| calm <= *at) => false,
                Some((answered, ..)) => {
                    let ttl = case.terms(attempt).map_or(u64::MAX, |terms| terms.ttl);
                    *at <= answered.saturating_add(ttl).saturating_add(MARGIN)
                }
            });
        if !excused {
            let last = attempts
                .iter()
                .filter_map(|attempt| attempt.answered)
                .map(|(at, ..)| at);
            broken(format!(
                "a lease of {holder} belongs to an acquire that ended without a hold, {} ago or longer",
                ms(at.saturating_sub(last.filter(|then| then <= at).max().unwrap_or(0)))
            ));
        }
    }
    found
}
