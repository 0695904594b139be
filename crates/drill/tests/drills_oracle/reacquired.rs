//! Leases that a hold re-acquired: their fences, and what holders may believe before and after.

use leasehold_drill::history::{HistoryEntry, RecordedOutcome};

use crate::script::HistoryScript;

/// A hold of a class that continues, unproven at 900 ms.
fn unproven(fence: u64) -> HistoryScript {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", fence);
    script.event(900, "a", 1, "unproven", fence);
    script
}

/// A lease is requested again only after the last one is in doubt.
#[test]
fn i2_a_lease_is_taken_again_with_a_smaller_fence() {
    let mut script = unproven(9);
    script.event_of(5000, "a", 1, "proven_again", 8, None, Some("retaken"));
    script.assert_broken(&["I2"]);
    let mut script = unproven(9);
    script.event_of(5000, "a", 1, "proven_again", 10, None, Some("retaken"));
    script.event(5900, "a", 1, "unproven", 10);
    script.event_of(6000, "a", 1, "proven_again", 11, None, Some("retaken"));
    script.assert_broken(&[]);
}

/// A local-only hold may get the lease that its own first request was granted, which may be older than
/// it looks.
#[test]
fn i2_what_healed_may_have_been_granted_to_the_first_ask() {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "loose");
    script.hold(10, "b", 1, 9);
    script.release(20, "b", 1);
    script.event(30, "a", 1, "fell_back", 0);
    script.end_acquire(31, "a", 1, RecordedOutcome::LocalOnly, 0);
    script.event(300, "a", 1, "healed", 8);
    script.assert_broken(&[]);
}

#[test]
fn i5_a_proof_by_what_was_confirmed_later() {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 3000), 7);
    script.event(900, "a", 1, "unproven", 7);
    script.event(4000, "a", 1, "proven_again", 7);
    script.assert_broken(&["I5"]);
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.claim_of(10, "a", 1, (5000, 3000), 7);
    script.event(900, "a", 1, "unproven", 7);
    script.event_of(4000, "a", 1, "proven_again", 8, None, Some("retaken"));
    script.assert_broken(&["I5"]);
}

#[test]
fn i5_a_lease_that_was_taken_again_is_a_proof() {
    let mut script = unproven(7);
    script.event_of(4000, "a", 1, "proven_again", 8, None, Some("retaken"));
    script.claim_of(4000, "a", 1, (9000, 4900), 8);
    script.assert_broken(&[]);
    script.claim_of(4000, "a", 1, (9000, 4901), 8);
    script.assert_broken(&["I5"]);
}

/// A local-only hold claims a proof at 100 ms and heals at `at`.
fn heals_at(at: u64) -> HistoryScript {
    let mut script = HistoryScript::new();
    script.begin_acquire(0, "a", 1, "loose");
    script.event(5, "a", 1, "fell_back", 0);
    script.end_acquire(6, "a", 1, RecordedOutcome::LocalOnly, 0);
    script.claim_of(100, "a", 1, (5000, 1000), 7);
    script.event(at, "a", 1, "healed", 7);
    script
}

#[test]
fn i8_a_proof_long_before_it_healed() {
    heals_at(600).assert_broken(&["I5", "I8"]);
    heals_at(115).assert_broken(&[]);
}

/// After a data loss, earlier grants do not count; later ones do.
#[test]
fn i1_two_holders_after_the_store_forgot() {
    let mut script = HistoryScript::new();
    script.hold_as(0, "a", 1, "loose", 7);
    script.push_record(100, "director", HistoryEntry::Forgot);
    script.event(900, "a", 1, "unproven", 7);
    script.event_of(1500, "a", 1, "proven_again", 8, None, Some("retaken"));
    script.claim_of(1510, "a", 1, (9000, 2400), 8);
    script.hold(1600, "b", 1, 9);
    script.claim(1610, "b", 1, 2500, 9);
    script.assert_broken(&["I1"]);
}
