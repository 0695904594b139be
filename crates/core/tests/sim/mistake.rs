//! Tests of the oracle: every known mistake, injected, must break the promise it is about.

use crate::plan::{Mistake, SimPlan};
use crate::run::run_history;

/// A mistake must be caught within this many histories.
const MAX_HISTORIES_PER_MISTAKE: u64 = 3_000;

/// Runs histories with the mistake until the expected promise is broken.
fn must_break(mistake: Mistake, promise: &str) {
    let caught = (0..MAX_HISTORIES_PER_MISTAKE).find(|seed| {
        let report = run_history(&SimPlan::new(*seed, mistake), true, false);
        report.violations.contains_key(promise)
    });
    match caught {
        Some(seed) => println!("{mistake:?} breaks {promise} at seed {seed}"),
        None => panic!(
            "{mistake:?} did not break {promise} in {MAX_HISTORIES_PER_MISTAKE} histories: the net has a hole"
        ),
    }
}

#[test]
fn a_deadline_from_the_reply_breaks_i5() {
    must_break(Mistake::DeadlineFromReply, "I5");
}

#[test]
fn no_margin_breaks_i5() {
    must_break(Mistake::NoMargin, "I5");
}

#[test]
fn no_margin_breaks_i1() {
    must_break(Mistake::NoMargin, "I1");
}

#[test]
fn a_margin_of_one_clock_error_breaks_i5() {
    must_break(Mistake::HalfMargin, "I5");
}

#[test]
fn a_repeated_fence_breaks_i2() {
    must_break(Mistake::FenceRepeated, "I2");
}

#[test]
fn release_without_comparing_breaks_i4() {
    must_break(Mistake::ReleaseWithoutComparing, "I4");
}

#[test]
fn release_without_comparing_breaks_i1() {
    must_break(Mistake::ReleaseWithoutComparing, "I1");
}

#[test]
fn renew_without_comparing_breaks_i4() {
    must_break(Mistake::RenewWithoutComparing, "I4");
}

#[test]
fn renew_that_revives_breaks_i4() {
    must_break(Mistake::RenewRevives, "I4");
}

#[test]
fn a_plain_counter_breaks_i2() {
    must_break(Mistake::PlainCounter, "I2");
}

#[test]
fn no_undo_breaks_i6() {
    must_break(Mistake::NoUndo, "I6");
}

#[test]
fn a_late_request_without_an_undo_breaks_i6() {
    must_break(Mistake::NoLateUndo, "I6");
}

#[test]
fn no_undo_breaks_i7() {
    must_break(Mistake::NoUndo, "I7");
}

#[test]
fn a_second_not_owned_as_a_fault_breaks_i7() {
    must_break(Mistake::SecondNotOwnedIsAnError, "I7");
}

#[test]
fn cached_validity_breaks_i5() {
    must_break(Mistake::CachedValidity, "I5");
}

#[test]
fn failures_without_a_deadline_break_i5() {
    must_break(Mistake::FailuresOnly, "I5");
}

#[test]
fn not_owned_as_a_failure_breaks_i5() {
    must_break(Mistake::NotOwnedIsAFailure, "I5");
}

#[test]
fn an_unfenced_target_breaks_i3() {
    must_break(Mistake::UnfencedTarget, "I3");
}
