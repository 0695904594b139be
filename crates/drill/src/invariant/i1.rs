//! I1: at most one distributed hold of a name is within its deadline at any instant.
//!
//! A claim is an interval of real time. It starts when the holder checked its hold. It ends with the
//! lease that the holder saw, or when the holder began to release or abandoned the hold. Intervals of
//! two holds of one name must not overlap. A killed holder's interval ends with its lease, which the
//! store kept at least that long. In a class that continues, work may go on for longer; what counts is
//! how long the holder believed to be alone.
//!
//! A store that loses data breaks this, and no client can prevent it. Claims on leases granted before
//! the loss therefore end there. Claims on a lease that an operator broke end likewise.

use std::collections::{BTreeMap, HashMap};

use crate::invariant::format_ms;
use crate::oracle::{Attempt, Finding, HistoryIndex};

struct ClaimSpan<'a> {
    from: u64,
    to: u64,
    who: &'a str,
    attempt: u64,
}

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let mut names: BTreeMap<&str, Vec<ClaimSpan<'_>>> = BTreeMap::new();
    for attempt in case.all_attempts() {
        let spans = claim_spans(case, attempt);
        names.entry(attempt.name).or_default().extend(spans);
    }
    let mut found = Vec::new();
    for (name, mut spans) in names {
        spans.sort_by_key(|span| (span.from, span.to));
        // Two candidates suffice for a sweep in linear time: the span that reaches furthest, and the
        // furthest one of any other hold.
        let mut furthest: Option<&ClaimSpan<'_>> = None;
        let mut rival: Option<&ClaimSpan<'_>> = None;
        case.count_work(spans.len());
        for span in &spans {
            let same = |other: &&ClaimSpan<'_>| other.who == span.who && other.attempt == span.attempt;
            let other = furthest.filter(|one| !same(one)).or(rival.filter(|one| !same(one)));
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
                        format_ms(other.to.min(span.to).saturating_sub(span.from))
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

fn claim_spans<'a>(case: &HistoryIndex<'_>, attempt: &Attempt<'a>) -> Vec<ClaimSpan<'a>> {
    let over = attempt.claims_end().unwrap_or(u64::MAX);
    let granted: HashMap<_, _> = attempt.granted.iter().copied().collect();
    let mut spans = Vec::new();
    case.count_work(attempt.claims.len() + granted.len());
    for claim in &attempt.claims {
        let Some(until) = claim.proven_until else { continue };
        // A lease that was taken again after a loss is a new one and counts in full.
        let since = claim.fence.and_then(|fence| granted.get(&fence));
        let forgot = case.store_loss_after(since.copied().unwrap_or(attempt.sent));
        let broke = claim.fence.and_then(|fence| case.broken_leases.get(&(attempt.name, fence)));
        let lost = forgot.unwrap_or(u64::MAX).min(broke.copied().unwrap_or(u64::MAX));
        let to = until.min(over).min(lost);
        if to > claim.at {
            spans.push(ClaimSpan { from: claim.at, to, who: attempt.who, attempt: attempt.number });
        }
    }
    spans
}
