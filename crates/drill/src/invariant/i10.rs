//! I10: each counter moves exactly once per transition, and events and metrics agree.
//!
//! Per client: events are numbered without a gap. Each acquire ends once, each hold ends once, each
//! debt is cleared once. The client's counters at its orderly end equal the sums of its events. A
//! killed client may lack its last events.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::ClientEvent;
use crate::oracle::{Finding, HistoryIndex};

// Events emitted this shortly before a kill may not have reached the file.
const KILL_LOSS_WINDOW_NANOS: u64 = 1_000_000_000;

pub(super) fn check(case: &HistoryIndex<'_>) -> Vec<Finding> {
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
        // A hold ended by a shutdown is still released, which is an event too. So its `abandoned` does not
        // count as the end of the hold.
        let mut ended: HashSet<u64> = HashSet::new();
        case.count_work(events.len());
        for (at, event) in events {
            let name = event.name.as_deref();
            if event.seq < next {
                broken(*at, name, format!("event {} was reported twice", event.seq));
            } else if event.seq > next
                && case
                    .killed_at
                    .get(who)
                    .is_none_or(|kill| *kill > at.saturating_add(KILL_LOSS_WINDOW_NANOS))
            {
                broken(*at, name, format!("events {next} to {} are missing", event.seq - 1));
            }
            next = event.seq + 1;
            let Some(kind) = once_only_group(&event.event) else {
                continue;
            };
            if event.event == "abandoned" && event.detail.as_deref() == Some("shutdown") {
                if ended.insert(event.hold) {
                    continue;
                }
                broken(*at, name, format!("the shutdown of hold {} was reported twice", event.hold));
            }
            let count = seen.entry((event.hold, kind)).or_default();
            *count += 1;
            if *count == 2 {
                broken(*at, name, format!("{kind} of hold {} was reported twice", event.hold));
            }
        }
        if let Some((at, counters)) = case.tallies.get(who) {
            let expected = count_events(events);
            for (counter, value) in *counters {
                let due = expected.get(counter.as_str()).copied().unwrap_or(0);
                if due != *value {
                    broken(*at, None, format!("counter {counter} is {value}, its events are {due}"));
                }
            }
        }
    }
    found
}

/// The group of events of which each hold or attempt may have one.
fn once_only_group(event: &str) -> Option<&'static str> {
    match event {
        "acquired" | "busy" | "unavailable" | "cancelled" | "fell_back" => Some("the end of the acquire"),
        "released" | "kept" | "already_lost" | "abandoned" | "debt" => Some("the end of the hold"),
        "debt_cleared" => Some("the end of the debt"),
        "undone" => Some("the undo"),
        _ => None,
    }
}

/// The counters that are compared: event name, metric and label, as documented.
pub const COMPARED_COUNTERS: &[(&str, &str, &str)] = &[
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

fn count_events<'a>(events: &[(u64, &'a ClientEvent)]) -> BTreeMap<&'a str, i64> {
    let mut sums = BTreeMap::new();
    for (_, event) in events {
        if COMPARED_COUNTERS.iter().any(|(label, ..)| *label == event.event) {
            *sums.entry(event.event.as_str()).or_default() += 1;
        }
    }
    sums
}
