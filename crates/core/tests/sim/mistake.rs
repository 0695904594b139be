//! The net must hold: every known mistake, put back, breaks the promise it is about.

use crate::plan::{Mistake, Plan};
use crate::run::live;

/// Histories until a mistake must have been caught.
const MOST: u64 = 3_000;

/// Lives histories with the mistake until the expected promise is broken.
fn must_break(mistake: Mistake, promise: &str) {
    let caught = (0..MOST).find(|seed| {
        let report = live(&Plan::new(*seed, mistake), true, false);
        report.violations.contains_key(promise)
    });
    match caught {
        Some(seed) => println!("{mistake:?} breaks {promise} at seed {seed}"),
        None => panic!("{mistake:?} did not break {promise} in {MOST} histories: the net has a hole"),
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
fn a_token_that_is_not_forgotten_breaks_i6() {
    must_break(Mistake::NoForget, "I6");
}

#[test]
fn no_undo_breaks_i7() {
    must_break(Mistake::NoUndo, "I7");
}

#[test]
fn a_second_not_owned_as_a_fault_breaks_i7() {
    must_break(Mistake::SecondNotOwnedIsAFault, "I7");
}

#[test]
fn cached_validity_breaks_i5() {
    must_break(Mistake::CachedValidity, "I5");
}

#[test]
fn strikes_without_a_deadline_break_i5() {
    must_break(Mistake::StrikesOnly, "I5");
}

#[test]
fn not_owned_as_a_strike_breaks_i5() {
    must_break(Mistake::NotOwnedIsAStrike, "I5");
}

#[test]
fn an_unfenced_target_breaks_i3() {
    must_break(Mistake::UnfencedTarget, "I3");
}
