//! The promises, one file each, as far as a history can show them. Their numbers are those of the semantics.
//!
//! L2, L3, L5 and L6 are judged only where a history says that it has become calm ([`judged`]); L1 shows there as an acquire that is not
//! granted (L5), and a lease that outlives its time as I6.
//!
//! Not here: I4 and I7 are about single messages that a history of a whole drill does not show (conformance and
//! simulation check them); I11 and I12 are about what no drill does yet.

mod i1;
mod i10;
mod i2;
mod i3;
mod i5;
mod i6;
mod i8;
mod i9;
mod l2;
mod l3;
mod l4;
mod l5;
mod l6;

#[cfg(feature = "drills")]
pub(crate) use i10::COUNTERS;

use crate::oracle::{Case, Finding};

/// By how much later than it happened a renewal or a grant may be told: another thread may work on its strength before that.
const TOLD: u64 = 20_000_000;

/// Looks at a case.
pub type Check = fn(&Case<'_>) -> Vec<Finding>;

/// Every invariant that is checked, with its number.
pub const ALL: &[(&str, Check)] = &[
    ("I1", i1::check),
    ("I2", i2::check),
    ("I3", i3::check),
    ("I5", i5::check),
    ("I6", i6::check),
    ("I8", i8::check),
    ("I9", i9::check),
    ("I10", i10::check),
    ("L2", l2::check),
    ("L3", l3::check),
    ("L4", l4::check),
    ("L5", l5::check),
    ("L6", l6::check),
];

/// Those that this history can show: what it never looked at, it does not judge.
#[must_use]
pub fn judged(case: &Case<'_>) -> Vec<&'static str> {
    let calm = case.calm.is_some();
    let shown = |number: &str| match number {
        "L2" | "L5" | "L6" => calm,
        // Whoever says that it is calm looks for what remains; only what is there is worth a line.
        "L3" => calm || !case.remains.is_empty(),
        _ => true,
    };
    let numbers = ALL.iter().map(|(number, _)| *number);
    numbers.filter(|number| shown(number)).collect()
}

/// What an invariant promises, in one line, for reports.
#[must_use]
pub fn promise(number: &str) -> &'static str {
    match number {
        "I1" => "at most one holder of a name at any instant",
        "I2" => "fences of a name only grow, and none is issued twice",
        "I3" => "a stale write is never applied",
        "I5" => "no work past the deadline",
        "I6" => "an acquire that failed leaves no lease behind",
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

/// Milliseconds, for sentences.
pub(crate) fn ms(nanos: u64) -> String {
    format!("{:.1} ms", nanos as f64 / 1e6)
}
