//! What a loss, a kill or a lease taken away excuses, and that it excuses no more than that.

use leasehold_core::Fence;
use leasehold_drill::history::{Answer, Entry, UNATTENDED};

use crate::script::{MS, NAME, Script};

/// Taken away by an operator.
fn broke(script: &mut Script, at: u64, name: &str, fence: u64) {
    let Some(fence) = Fence::new(fence) else {
        panic!("{fence} is no fence");
    };
    let name = name.into();
    script.line(at, "director", Entry::Broke { name, fence });
}

fn two_at_once(name: &str, fence: u64) -> Script {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    broke(&mut script, 100, name, fence);
    script.hold(110, "b", 1, 8);
    script.claim(120, "b", 1, 1000, 8);
    script
}

#[test]
fn i1_a_lease_that_was_taken_away_excuses_its_own_holder_only() {
    two_at_once(NAME, 7).breaks(&[]);
    two_at_once("job:2", 7).breaks(&["I1"]);
    two_at_once(NAME, 6).breaks(&["I1"]);
}

/// Held and given back; then an acquire that was refused.
fn refused_later() -> Script {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.release(100, "a", 1);
    script.ask(200, "a", 2, "strict");
    script.event(205, "a", 2, "unavailable", 0);
    script.answer(206, "a", 2, Answer::Unavailable, 0);
    script
}

#[test]
fn i6_an_earlier_hold_excuses_nothing() {
    let mut script = refused_later();
    script.lease(1200, "a", 8);
    script.breaks(&[]);
    script.lease(5000, "a", 8);
    script.breaks(&["I6"]);
}

#[test]
fn i6_after_the_calm_only_what_is_under_way_excuses() {
    let mut script = refused_later();
    script.line(300, "director", Entry::Calm);
    script.lease(310, "a", 8);
    script.breaks(&["I6"]);
    // A hold that is not over may be getting its lease back.
    let mut script = refused_later();
    script.hold_as(250, "a", 3, "loose", 9);
    script.line(300, "director", Entry::Calm);
    script.event(1150, "a", 3, "unproven", 9);
    script.lease(4000, "a", 10);
    script.release(5000, "a", 3);
    script.breaks(&[]);
    script.lease(5010, "a", 10);
    script.breaks(&["I6"]);
}

/// Who is killed undoes nothing, and its asks may be on their way; not for ever.
#[test]
fn i6_a_kill_excuses_for_a_while() {
    let mut script = refused_later();
    script.signal(210, "a", "kill");
    script.line(300, "director", Entry::Calm);
    script.lease(5000, "a", 8);
    script.breaks(&[]);
    script.lease(90_000, "a", 8);
    script.breaks(&["I6"]);
}

/// Nor does who just goes: another ask of the same acquire may be on its way. Who leaves the lease alone because it abandoned its
/// hold, or because its class keeps leases, has undone by the time of the calm what came after it, unless it went before, or is
/// one for whom nobody does that.
#[test]
fn i6_a_hold_that_nobody_gives_back_excuses_for_a_while() {
    let mut gone = Script::new();
    gone.hold(0, "a", 1, 7);
    gone.line(100, "a", Entry::Releasing { attempt: 1 });
    let mut abandoned = Script::new();
    abandoned.hold(0, "a", 1, 7);
    abandoned.event_of(100, "a", 1, "abandoned", 7, None, Some("max_failures"));
    let mut kept = gone.clone();
    kept.event(100, "a", 1, "kept", 7);
    for there in [&abandoned, &kept] {
        let mut before = there.clone();
        before.lease(5000, "a", 8);
        before.breaks(&[]);
        let mut script = there.clone();
        script.line(300, "director", Entry::Calm);
        script.lease(5000, "a", 8);
        script.breaks(&["I6"]);
    }
    let mut unattended = Script::new();
    unattended.hold(0, "a", 1, 7);
    unattended.event_of(100, "a", 1, "abandoned", 7, None, Some(UNATTENDED));
    for script in [&mut abandoned, &mut kept] {
        let counters = std::collections::BTreeMap::new();
        script.line(200, "a", Entry::Tally { counters });
    }
    for mut script in [gone, abandoned, kept, unattended] {
        script.line(300, "director", Entry::Calm);
        script.lease(5000, "a", 8);
        script.breaks(&[]);
        script.lease(90_000, "a", 8);
        script.breaks(&["I6"]);
    }
    let mut given_back = Script::new();
    given_back.hold(0, "a", 1, 7);
    given_back.release(100, "a", 1);
    given_back.line(300, "director", Entry::Calm);
    given_back.lease(5000, "a", 8);
    given_back.breaks(&["I6"]);
}

/// A tombstone that is forgotten lets a late ask in; not for ever, and not where nothing was forgotten.
#[test]
fn i6_a_loss_excuses_for_a_while() {
    let mut script = refused_later();
    script.line(250, "director", Entry::Forgot);
    script.lease(5000, "a", 8);
    script.breaks(&[]);
    script.lease(90_000, "a", 8);
    script.breaks(&["I6"]);
    let mut script = refused_later();
    broke(&mut script, 250, NAME, 7);
    script.lease(5000, "a", 8);
    script.breaks(&["I6"]);
}

#[test]
fn l4_a_kill_that_comes_later_excuses_nothing() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.reported(9000, "a", 1, None, true);
    script.breaks(&["L4"]);
    script.signal(60_000, "a", "kill");
    script.breaks(&["L4"]);
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    script.signal(800, "a", "kill");
    script.reported(9000, "a", 1, None, true);
    script.breaks(&[]);
}

#[test]
fn i10_a_gap_long_before_the_kill() {
    let mut script = Script::new();
    script.hold(0, "a", 1, 7);
    script.event(10, "a", 1, "renewed", 7);
    script.event(20, "a", 1, "renewed", 7);
    script.records.retain(|record| record.at != 10 * MS);
    script.release(100, "a", 1);
    script.signal(60_000, "a", "kill");
    script.breaks(&["I10"]);
}

/// Learns of its loss half a second after its last deadline.
fn learns_late(slack: Option<u64>) -> Script {
    let mut script = Script::new();
    if let Some(late) = slack {
        script.line(0, "director", Entry::Slack { late: late * MS });
    }
    script.hold(0, "a", 1, 7);
    script.claim(10, "a", 1, 900, 7);
    // Sent at 0: confirms nothing that the grant did not.
    script.event_of(400, "a", 1, "renewed", 7, Some(400), None);
    script.event_of(1405, "a", 1, "abandoned", 7, None, Some("deadline"));
    script
}

#[test]
fn l4_allows_what_the_history_says_may_be_late() {
    learns_late(None).breaks(&[]);
    learns_late(Some(600)).breaks(&[]);
    learns_late(Some(499)).breaks(&["L4"]);
    learns_late(Some(0)).breaks(&["L4"]);
}
