//! What a data loss, a kill or a broken lease excuses, and that it excuses no more.

use leasehold_core::Fence;
use leasehold_drill::history::{HistoryEntry, RecordedOutcome, UNATTENDED};

use crate::script::{HistoryScript, MS, NAME};

/// An operator breaks the lease.
fn break_lease(script: &mut HistoryScript, at: u64, name: &str, fence: u64) {
    let Some(fence) = Fence::new(fence) else {
        panic!("{fence} is no fence");
    };
    let name = name.into();
    script.push_record(at, "director", HistoryEntry::Broke { name, fence });
}

fn two_at_once(name: &str, fence: u64) -> HistoryScript {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    break_lease(&mut script, 100, name, fence);
    script.hold(110, "b", 1, 8);
    script.claim(120, "b", 1, 1000, 8);
    script
}

#[test]
fn i1_a_broken_lease_excuses_its_own_holder_only() {
    two_at_once(NAME, 7).assert_broken(&[]);
    two_at_once("job:2", 7).assert_broken(&["I1"]);
    two_at_once(NAME, 6).assert_broken(&["I1"]);
}

/// One hold that was released, then an acquire that was refused.
fn refused_later() -> HistoryScript {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.release(100, "a", 1);
    script.begin_acquire(200, "a", 2, "strict");
    script.event(205, "a", 2, "unavailable", 0);
    script.end_acquire(206, "a", 2, RecordedOutcome::Unavailable, 0);
    script
}

#[test]
fn i6_an_earlier_hold_excuses_nothing() {
    let mut script = refused_later();
    script.lease(1200, "a", 8);
    script.assert_broken(&[]);
    script.lease(5000, "a", 8);
    script.assert_broken(&["I6"]);
}

#[test]
fn i6_after_the_calm_only_what_is_under_way_excuses() {
    let mut script = refused_later();
    script.push_record(300, "director", HistoryEntry::Calm);
    script.lease(310, "a", 8);
    script.assert_broken(&["I6"]);
    // A hold that is not over may be re-acquiring its lease.
    let mut script = refused_later();
    script.hold_as(250, "a", 3, "loose", 9);
    script.push_record(300, "director", HistoryEntry::Calm);
    script.event(1150, "a", 3, "unproven", 9);
    script.lease(4000, "a", 10);
    script.release(5000, "a", 3);
    script.assert_broken(&[]);
    script.lease(5010, "a", 10);
    script.assert_broken(&["I6"]);
}

/// A killed client undoes nothing and its requests may be under way, but only for a while.
#[test]
fn i6_a_kill_excuses_for_a_while() {
    let mut script = refused_later();
    script.signal(210, "a", "kill");
    script.push_record(300, "director", HistoryEntry::Calm);
    script.lease(5000, "a", 8);
    script.assert_broken(&[]);
    script.lease(90_000, "a", 8);
    script.assert_broken(&["I6"]);
}

/// A client that just leaves undoes nothing either. A client that abandons its hold, or keeps its lease
/// by policy, has undone late requests by the calm. Exceptions: it left before, or is unattended.
#[test]
fn i6_a_hold_without_release_excuses_for_a_while() {
    let mut gone = HistoryScript::new();
    gone.hold(0, "a", 1, 7);
    gone.push_record(100, "a", HistoryEntry::Releasing { attempt: 1 });
    let mut abandoned = HistoryScript::new();
    abandoned.hold(0, "a", 1, 7);
    abandoned.event_of(100, "a", 1, "abandoned", 7, None, Some("max_failures"));
    let mut kept = gone.clone();
    kept.event(100, "a", 1, "kept", 7);
    for there in [&abandoned, &kept] {
        let mut before = there.clone();
        before.lease(5000, "a", 8);
        before.assert_broken(&[]);
        let mut script = there.clone();
        script.push_record(300, "director", HistoryEntry::Calm);
        script.lease(5000, "a", 8);
        script.assert_broken(&["I6"]);
    }
    let mut unattended = HistoryScript::new();
    unattended.hold(0, "a", 1, 7);
    unattended.event_of(100, "a", 1, "abandoned", 7, None, Some(UNATTENDED));
    for script in [&mut abandoned, &mut kept] {
        let counters = std::collections::BTreeMap::new();
        script.push_record(200, "a", HistoryEntry::Tally { counters });
    }
    for mut script in [gone, abandoned, kept, unattended] {
        script.push_record(300, "director", HistoryEntry::Calm);
        script.lease(5000, "a", 8);
        script.assert_broken(&[]);
        script.lease(90_000, "a", 8);
        script.assert_broken(&["I6"]);
    }
    let mut given_back = HistoryScript::new();
    given_back.hold(0, "a", 1, 7);
    given_back.release(100, "a", 1);
    given_back.push_record(300, "director", HistoryEntry::Calm);
    given_back.lease(5000, "a", 8);
    given_back.assert_broken(&["I6"]);
}

/// A lost tombstone lets a late request in, but only for a while, and only after a data loss.
#[test]
fn i6_a_loss_excuses_for_a_while() {
    let mut script = refused_later();
    script.push_record(250, "director", HistoryEntry::Forgot);
    script.lease(5000, "a", 8);
    script.assert_broken(&[]);
    script.lease(90_000, "a", 8);
    script.assert_broken(&["I6"]);
    let mut script = refused_later();
    break_lease(&mut script, 250, NAME, 7);
    script.lease(5000, "a", 8);
    script.assert_broken(&["I6"]);
}

#[test]
fn l4_a_kill_that_comes_later_excuses_nothing() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.reported(9000, "a", 1, None, true);
    script.assert_broken(&["L4"]);
    script.signal(60_000, "a", "kill");
    script.assert_broken(&["L4"]);
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.signal(800, "a", "kill");
    script.reported(9000, "a", 1, None, true);
    script.assert_broken(&[]);
}

#[test]
fn i10_a_gap_long_before_the_kill() {
    let mut script = HistoryScript::new();
    script.hold(0, "a", 1, 7);
    script.event(10, "a", 1, "renewed", 7);
    script.event(20, "a", 1, "renewed", 7);
    script.records.retain(|record| record.at != 10 * MS);
    script.release(100, "a", 1);
    script.signal(60_000, "a", "kill");
    script.assert_broken(&["I10"]);
}

/// The holder learns of its loss half a second after its last deadline.
fn learns_late(slack: Option<u64>) -> HistoryScript {
    let mut script = HistoryScript::new();
    if let Some(late) = slack {
        script.push_record(0, "director", HistoryEntry::Slack { late: late * MS });
    }
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    // Sent at 0, so it confirms nothing beyond the grant.
    script.event_of(400, "a", 1, "renewed", 7, Some(400), None);
    script.event_of(1405, "a", 1, "abandoned", 7, None, Some("deadline"));
    script
}

#[test]
fn l4_allows_what_the_history_says_may_be_late() {
    learns_late(None).assert_broken(&[]);
    learns_late(Some(600)).assert_broken(&[]);
    learns_late(Some(499)).assert_broken(&["L4"]);
    learns_late(Some(0)).assert_broken(&["L4"]);
}
