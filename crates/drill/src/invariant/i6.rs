//! I6: an acquire without a hold leaves no lease once its undo was possible, and none past its TTL.
//!
//! The director records the leases it finds in the store. After all clients have ended and every TTL
//! is over there must be none. Before that, a lease may have a fence that no client received. It must
//! belong to an acquire or hold that is not over, or ended less than a TTL ago. A hold may be
//! re-acquiring its lease. After the calm every undo has been possible, so only acquires and holds that are not over
//! count.

use std::collections::{HashMap, HashSet};

use crate::history::{ClientEvent, RecordedOutcome, UNATTENDED};
use crate::invariant::format_ms;
use crate::oracle::{Attempt, Finding, HistoryIndex};

// For drifting clocks and the store's rounding.
const CLOCK_MARGIN_NANOS: u64 = 100_000_000;
// Stores keep tombstones for 60 s, the longest time that a request may be late.
const MAX_REQUEST_DELAY_NANOS: u64 = 60_000_000_000;

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
    let known: HashSet<_> = case.grants.iter().map(|grant| (grant.name, grant.fence)).collect();
    let excuses = lease_excuses(case);
    let mut found = Vec::new();
    for (at, name, holder, fence) in &case.leases {
        case.count_work(1);
        // Leases of clients outside this history.
        if !case.attempts.contains_key(holder) {
            continue;
        }
        let mut broken = |why| {
            found.push(Finding { invariant: "I6", at: *at, name: (*name).to_owned(), why });
        };
        if case.quiet.is_some_and(|quiet| quiet <= *at) {
            broken(format!("a lease of {holder} outlives everyone and every time to live"));
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
                "a lease of {holder} with a fence that no client received: its last acquire was over {} ago or longer",
                format_ms(at.saturating_sub(ended))
            ));
        }
    }
    found
}

/// What the acquires of one client for one name excuse, up to and including one of them.
struct LeaseExcuse {
    // When that acquire was sent.
    sent: u64,
    // Until when a lease that is not undone yet is excused.
    until: u64,
    // The same after the calm, where every undo has been possible.
    until_calm: u64,
    // The latest end so far.
    ended: u64,
}

impl LeaseExcuse {
    fn covers(&self, at: u64, calm: bool) -> bool {
        at <= if calm { self.until_calm } else { self.until }
    }
}

/// Excuses by client and name, in the order of sending.
fn lease_excuses<'a>(case: &HistoryIndex<'a>) -> HashMap<(&'a str, &'a str), Vec<LeaseExcuse>> {
    let mut all: HashMap<_, Vec<LeaseExcuse>> = HashMap::new();
    for attempt in case.all_attempts() {
        case.count_work(1 + attempt.events.len());
        let killed = case.killed_at.get(attempt.who).copied();
        let hold =
            matches!(attempt.answered, Some((_, RecordedOutcome::Held | RecordedOutcome::LocalOnly, _)));
        let ended = attempt.ended_at().or(killed.filter(|_| hold));
        let ttl = case.widest_terms(attempt).map_or(u64::MAX, |terms| terms.ttl);
        // Without an end it may be granted at any time; a hold may re-acquire its lease.
        let (until, until_calm) = ended.map_or((u64::MAX, u64::MAX), |ended| {
            let late = ended.saturating_add(MAX_REQUEST_DELAY_NANOS);
            // A killed or departed client undoes nothing, and a store that lost data has lost its tombstones.
            // A late request is then granted.
            let forgot = case.store_loss_after(attempt.sent).is_some_and(|at| at <= late);
            let helpless = killed.is_some() || forgot;
            let alone = hold && !was_released(attempt);
            let granted = if helpless || alone { late } else { ended };
            let until = granted.saturating_add(ttl).saturating_add(CLOCK_MARGIN_NANOS);
            let undone = !helpless && (!alone || undoes_late_grants(case, attempt));
            (until, if undone { ended } else { until })
        });
        let mine = all.entry((attempt.who, attempt.name)).or_default();
        let so_far = mine.last();
        let excuse = LeaseExcuse {
            sent: attempt.sent,
            until: until.max(so_far.map_or(0, |last| last.until)),
            until_calm: until_calm.max(so_far.map_or(0, |last| last.until_calm)),
            ended: ended.unwrap_or(0).max(so_far.map_or(0, |last| last.ended)),
        };
        mine.push(excuse);
    }
    all
}

/// Whether the client left the lease alone but undoes what arrives later.
fn undoes_late_grants(case: &HistoryIndex<'_>, attempt: &Attempt<'_>) -> bool {
    // Only a client that is still there at the calm can have undone everything by then.
    let went = case.tallies.get(attempt.who);
    let there = went.is_none_or(|(at, _)| case.calm.is_none_or(|calm| calm <= *at));
    let unattended = |event: &ClientEvent| event.detail.as_deref() == Some(UNATTENDED);
    let mut told = attempt.events.iter();
    there
        && told.any(|(_, event)| match event.event.as_str() {
            "abandoned" => !unattended(event),
            "kept" => true,
            _ => false,
        })
}

/// Whether the hold's lease was released. The lease of an abandoned or kept hold is left alone.
fn was_released(attempt: &Attempt<'_>) -> bool {
    let ends = ["released", "already_lost", "debt"];
    let mut told = attempt.events.iter().rev();
    told.any(|(_, event)| ends.contains(&event.event.as_str()))
}
