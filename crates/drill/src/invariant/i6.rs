//! I6: an acquire that did not end in a hold leaves no lease behind once its undo was possible, and none past its TTL.
//!
//! Leases are what the director saw in the store. When everything has ended and every TTL is over, there must be none.
//! Before that, a lease with a fence that nobody was told must belong to an acquire or a hold that is not over (a hold may be
//! getting its lease back), or was less than a TTL ago. After the calm every undo has been possible: there only those count
//! that are not over.

use std::collections::{HashMap, HashSet};

use crate::history::{Answer, Transition, UNATTENDED};
use crate::invariant::ms;
use crate::oracle::{Attempt, Case, Finding};

/// Clocks and the store's own rounding.
const MARGIN: u64 = 100_000_000;
/// How long an ask may be on its way: stores keep tombstones for as long.
const LATE: u64 = 60_000_000_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let known: HashSet<_> = case
        .grants
        .iter()
        .map(|grant| (grant.name, grant.fence))
        .collect();
    let excuses = excuses(case);
    let mut found = Vec::new();
    for (at, name, holder, fence) in &case.leases {
        case.looked(1);
        // Leases of others are none of ours.
        if !case.attempts.contains_key(holder) {
            continue;
        }
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
        let mine = excuses.get(&(*holder, *name)).map_or(&[][..], Vec::as_slice);
        let before = mine.partition_point(|excuse| excuse.sent <= *at);
        let last = before.checked_sub(1).and_then(|last| mine.get(last));
        let calm = case.calm.is_some_and(|calm| calm <= *at);
        if last.is_none_or(|last| !last.covers(*at, calm)) {
            let ended = last.map_or(0, |last| last.ended);
            broken(format!(
                "a lease of {holder} with a fence that nobody was told: its last acquire was over {} ago or longer",
                ms(at.saturating_sub(ended))
            ));
        }
    }
    found
}

/// What the acquires of one client for one name excuse, up to one of them.
struct Excuse {
    /// When that one was sent.
    sent: u64,
    /// Until when one of them excuses a lease that nobody has undone yet.
    until: u64,
    /// The same in the calm, where every undo has been possible.
    until_calm: u64,
    /// The latest end so far.
    ended: u64,
}

impl Excuse {
    fn covers(&self, at: u64, calm: bool) -> bool {
        at <= if calm { self.until_calm } else { self.until }
    }
}

/// By client and name, in the order in which they were sent.
fn excuses<'a>(case: &Case<'a>) -> HashMap<(&'a str, &'a str), Vec<Excuse>> {
    let mut all: HashMap<_, Vec<Excuse>> = HashMap::new();
    for attempt in case.all() {
        case.looked(1 + attempt.events.len());
        let killed = case.killed.get(attempt.who).copied();
        let hold = matches!(attempt.answered, Some((_, Answer::Held | Answer::LocalOnly, _)));
        let ended = attempt.ended().or(killed.filter(|_| hold));
        let ttl = case.terms(attempt).map_or(u64::MAX, |terms| terms.ttl);
        // Without an end it may be granted at any time, and so may a hold that gets its lease back.
        let (until, until_calm) = ended.map_or((u64::MAX, u64::MAX), |ended| {
            let late = ended.saturating_add(LATE);
            // Nobody undoes for a client that was killed, or that just went; and a store that forgot has forgotten what was
            // undone. An ask on its way is then granted all the same.
            let forgot = case.forgot_after(attempt.sent).is_some_and(|at| at <= late);
            let helpless = killed.is_some() || forgot;
            let alone = hold && !given_back(attempt);
            let granted = if helpless || alone { late } else { ended };
            let until = granted.saturating_add(ttl).saturating_add(MARGIN);
            let undone = !helpless && (!alone || seen_to(case, attempt));
            (until, if undone { ended } else { until })
        });
        let mine = all.entry((attempt.who, attempt.name)).or_default();
        let so_far = mine.last();
        let excuse = Excuse {
            sent: attempt.sent,
            until: until.max(so_far.map_or(0, |last| last.until)),
            until_calm: until_calm.max(so_far.map_or(0, |last| last.until_calm)),
            ended: ended.unwrap_or(0).max(so_far.map_or(0, |last| last.ended)),
        };
        mine.push(excuse);
    }
    all
}

/// Its client left the lease alone, and undoes what arrives after it: it has done so by the time everything is calm, if it is still
/// there then.
fn seen_to(case: &Case<'_>, attempt: &Attempt<'_>) -> bool {
    let went = case.tallies.get(attempt.who);
    let there = went.is_none_or(|(at, _)| case.calm.is_none_or(|calm| calm <= *at));
    let unattended = |event: &Transition| event.detail.as_deref() == Some(UNATTENDED);
    let mut told = attempt.events.iter();
    there
        && told.any(|(_, event)| match event.event.as_str() {
            "abandoned" => !unattended(event),
            "kept" => true,
            _ => false,
        })
}

/// The store was told that the hold is over. Of one that was abandoned or kept it is not: its lease is left alone.
fn given_back(attempt: &Attempt<'_>) -> bool {
    let ends = ["released", "already_lost", "debt"];
    let mut told = attempt.events.iter().rev();
    told.any(|(_, event)| ends.contains(&event.event.as_str()))
}
