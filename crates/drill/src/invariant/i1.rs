//! I1: at most one distributed hold of a name is within its deadline at any instant.
//!
//! A hold's claims are intervals of real time: from when its holder looked until the end of the lease that it saw, or until it
//! began to give the lease back or was abandoned. Intervals of two holds of one name must not meet. The end of a killed
//! holder is that of its lease: the store kept it until later than that. In a class that continues, work may go on for longer;
//! what counts is how long it believed to be alone.
//!
//! A store that forgets breaks this and no client can prevent it: claims on what was granted before a loss end there. So do
//! those on a lease that an operator took away; no others.

use std::collections::{BTreeMap, HashMap};

use crate::invariant::ms;
use crate::oracle::{Attempt, Case, Finding};

struct Span<'a> {
    from: u64,
    to: u64,
    who: &'a str,
    attempt: u64,
}

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut names: BTreeMap<&str, Vec<Span<'_>>> = BTreeMap::new();
    for attempt in case.all() {
        let spans = spans(case, attempt);
        names.entry(attempt.name).or_default().extend(spans);
    }
    let mut found = Vec::new();
    for (name, mut spans) in names {
        spans.sort_by_key(|span| (span.from, span.to));
        // The span that reaches furthest, and the furthest one of any other hold.
        let mut furthest: Option<&Span<'_>> = None;
        let mut rival: Option<&Span<'_>> = None;
        case.looked(spans.len());
        for span in &spans {
            let same = |other: &&Span<'_>| other.who == span.who && other.attempt == span.attempt;
            let other = furthest
                .filter(|one| !same(one))
                .or(rival.filter(|one| !same(one)));
            if let Some(other) = other.filter(|other| other.to > span.from) {
                found.push(Finding {
                    invariant: "I1",
                    at: span.from,
                    name: name.to_owned(),
                    why: format!(
                        "{} (acquire {}) and {} (acquire {}) both held it for {}",
                        other.who,
                        other.attempt,
                        span.who,
                        span.attempt,
                        ms(other.to.min(span.to).saturating_sub(span.from))
                    ),
                });
            }
            match furthest {
                Some(first) if same(&first) => {
                    if span.to > first.to {
                        furthest = Some(span);
                    }
                }
                Some(first) if span.to > first.to => {
                    rival = Some(first);
                    furthest = Some(span);
                }
                Some(_) => {
                    if rival.is_none_or(|rival| span.to > rival.to) {
                        rival = Some(span);
                    }
                }
                None => furthest = Some(span),
            }
        }
    }
    found
}

fn spans<'a>(case: &Case<'_>, attempt: &Attempt<'a>) -> Vec<Span<'a>> {
    let over = attempt.over().unwrap_or(u64::MAX);
    let granted: HashMap<_, _> = attempt.granted.iter().copied().collect();
    let mut spans = Vec::new();
    case.looked(attempt.claims.len() + granted.len());
    for claim in &attempt.claims {
        let Some(until) = claim.proven_until else { continue };
        // A lease that was taken again after a loss is not the one that was lost.
        let since = claim.fence.and_then(|fence| granted.get(&fence));
        let forgot = case.forgot_after(since.copied().unwrap_or(attempt.sent));
        let broke = claim
            .fence
            .and_then(|fence| case.broke.get(&(attempt.name, fence)));
        let lost = forgot.unwrap_or(u64::MAX).min(broke.copied().unwrap_or(u64::MAX));
        let to = until.min(over).min(lost);
        if to > claim.at {
            spans.push(Span {
                from: claim.at,
                to,
                who: attempt.who,
                attempt: attempt.number,
            });
        }
    }
    spans
}
