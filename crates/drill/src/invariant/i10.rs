//! I10: each counter moves exactly once per transition, and events and metrics agree.
//!
//! Per client: events are numbered without a gap; an acquire ends once, a hold ends once, a debt is cleared once; and
//! the client's own counters at its orderly end are what its events add up to. A killed client may lack its last events.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::Transition;
use crate::oracle::{Case, Finding};

/// Of what a client told so short a time before it was killed, something may be lost.
const LAST: u64 = 1_000_000_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (who, events) in &case.events {
        let mut broken = |at, name: Option<&str>, why: String| {
            found.push(Finding {
                invariant: "I10",
                at,
                name: name.unwrap_or("-").to_owned(),
                why: format!("{who}: {why}"),
            });
        };
        let mut next = 0;
        let mut seen: HashMap<(u64, &str), u32> = HashMap::new();
        // A hold that a shutdown ended is given back all the same, and that is told too.
        let mut ended: HashSet<u64> = HashSet::new();
        case.looked(events.len());
        for (at, event) in events {
            let name = event.name.as_deref();
            if event.seq < next {
                broken(*at, name, format!("event {} was told twice", event.seq));
            } else if event.seq > next
                && case
                    .killed
                    .get(who)
                    .is_none_or(|kill| *kill > at.saturating_add(LAST))
            {
                broken(
                    *at,
                    name,
                    format!("events {next} to {} are missing", event.seq - 1),
                );
            }
            next = event.seq + 1;
            let Some(kind) = once(&event.event) else { continue };
            if event.event == "abandoned" && event.detail.as_deref() == Some("shutdown") {
                if ended.insert(event.hold) {
                    continue;
                }
                broken(
                    *at,
                    name,
                    format!("the shutdown of hold {} was told twice", event.hold),
                );
            }
            let count = seen.entry((event.hold, kind)).or_default();
            *count += 1;
            if *count == 2 {
                broken(*at, name, format!("{kind} of hold {} was told twice", event.hold));
            }
        }
        if let Some((at, counters)) = case.tallies.get(who) {
            let expected = add_up(events);
            for (counter, value) in *counters {
                let due = expected.get(counter.as_str()).copied().unwrap_or(0);
                if due != *value {
                    broken(
                        *at,
                        None,
                        format!("counter {counter} is {value}, its events are {due}"),
                    );
                }
            }
        }
    }
    found
}

/// What may happen once to each hold or attempt.
fn once(event: &str) -> Option<&'static str> {
    match event {
        "acquired" | "busy" | "unavailable" | "cancelled" | "fell_back" => Some("the end of the acquire"),
        "released" | "kept" | "already_lost" | "abandoned" | "debt" => Some("the end of the hold"),
        "debt_cleared" => Some("the end of the debt"),
        "undone" => Some("the undo"),
        _ => None,
    }
}

/// The counters that whole numbers can be compared of, as their documentation says they move.
pub(crate) const COUNTERS: &[(&str, &str, &str)] = &[
    ("acquired", "acquire_total", "acquired"),
    ("busy", "acquire_total", "busy"),
    ("unavailable", "acquire_total", "unavailable"),
    ("fell_back", "acquire_total", "fell_back"),
    ("healed", "healed_total", ""),
    ("renewed", "renew_total", "renewed"),
    ("unproven", "unproven_total", ""),
    ("overlap_confirmed", "overlap_confirmed_total", ""),
    ("released", "release_total", "released"),
    ("kept", "release_total", "kept"),
    ("already_lost", "release_total", "already_lost"),
    ("debt", "release_total", "debt"),
    ("undone", "undone_total", ""),
    ("fence_refused", "fence_refused_total", ""),
];

fn add_up<'a>(events: &[(u64, &'a Transition)]) -> BTreeMap<&'a str, i64> {
    let mut sums = BTreeMap::new();
    for (_, event) in events {
        if COUNTERS.iter().any(|(label, ..)| *label == event.event) {
            *sums.entry(event.event.as_str()).or_default() += 1;
        }
    }
    sums
}
