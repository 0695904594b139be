//! The promises, one file each, as far as a history can show them. The numbers are those of the
//! semantics.
//!
//! L2, L3, L5 and L6 are judged only if the history has a calm ([`judged_invariants`]). L1 shows there
//! as an acquire that is not granted (L5). A lease that outlives its TTL shows as I6.
//!
//! I4 and I7 are about single requests: only the histories of the simulator show what the store
//! executed. I11 and I12 are not here: no drill creates their situations yet.

mod i1;
mod i10;
mod i2;
mod i3;
mod i4;
mod i5;
mod i6;
mod i7;
mod i8;
mod i9;
mod l2;
mod l3;
mod l4;
mod l5;
mod l6;

pub use i10::COMPARED_COUNTERS;

use crate::oracle::{Finding, HistoryIndex};

// A renewal or grant is recorded this much after it happened, at most. Another thread may already
// work under it by then.
const MAX_EVENT_DELAY_NANOS: u64 = 20_000_000;

/// Checks one invariant of an indexed history.
pub type InvariantCheck = fn(&HistoryIndex<'_>) -> Vec<Finding>;

/// Every invariant that is checked, with its number.
pub const ALL_INVARIANTS: &[(&str, InvariantCheck)] = &[
    ("I1", i1::check),
    ("I2", i2::check),
    ("I3", i3::check),
    ("I4", i4::check),
    ("I5", i5::check),
    ("I6", i6::check),
    ("I7", i7::check),
    ("I8", i8::check),
    ("I9", i9::check),
    ("I10", i10::check),
    ("L2", l2::check),
    ("L3", l3::check),
    ("L4", l4::check),
    ("L5", l5::check),
    ("L6", l6::check),
];

/// The invariants that this history can show.
#[must_use]
pub fn judged_invariants(case: &HistoryIndex<'_>) -> Vec<&'static str> {
    let calm = case.calm.is_some();
    let shown = |number: &str| match number {
        "L2" | "L5" | "L6" => calm,
        "I4" | "I7" => !case.executions.is_empty(),
        // The party that records a calm also looks for leftovers, and records only those it finds.
        "L3" => calm || !case.leftovers.is_empty(),
        _ => true,
    };
    let numbers = ALL_INVARIANTS.iter().map(|(number, _)| *number);
    numbers.filter(|number| shown(number)).collect()
}

/// What an invariant promises, in one line, for reports.
#[must_use]
pub fn promise_text(number: &str) -> &'static str {
    match number {
        "I1" => "at most one holder of a name at any instant",
        "I2" => "fences of a name only grow, and none is issued twice",
        "I3" => "a stale write is never applied",
        "I4" => "only the owner renews or releases, and nothing revives a lease",
        "I5" => "no work past the deadline",
        "I6" => "an acquire that failed leaves no lease behind",
        "I7" => "an unknown outcome is reported neither as success nor as failure",
        "I8" => "work runs without a store only where the class says so, and is marked",
        "I9" => "the work's own result is never replaced",
        "I10" => "every transition is counted exactly once",
        "L2" => "a waiter gets in within one poll, even without notifications",
        "L3" => "nothing is left behind by callers that are gone",
        "L4" => "a holder learns of its loss by its deadline",
        "L5" => "after faults end, everything heals by itself",
        "L6" => "waiters are served in order",
        _ => "unknown invariant",
    }
}

/// Formats nanoseconds as milliseconds.
pub(crate) fn format_ms(nanos: u64) -> String {
    format!("{:.1} ms", nanos as f64 / 1e6)
}
