//! Holds without a provable lease: `continue` classes and local-only holds.

use super::*;
use leasehold_core::deadline::drift_over;
use leasehold_core::policy::Enforcement;

// A `continue` hold past its deadline, with a renewal in flight.
fn unproven() -> HoldMachine {
    let mut life = held(class(continuing));
    tick(&mut life, 10_000);
    step(&mut life, Input::RenewFailed { unknown: true }, 12_000);
    let effects = tick(&mut life, 29_680);
    assert!(effects.contains(&Effect::Emit(EventKind::Unproven)), "{effects:?}");
    life
}

// A `continue` hold whose lease is lost, with a heal in flight.
fn lost_and_healing() -> HoldMachine {
    let mut life = held(class(continuing));
    tick(&mut life, 10_000);
    let effects = step(&mut life, Input::NotOwned, 10_010);
    assert_eq!(effects.last(), Some(&Effect::Heal));
    life
}

#[test]
fn late_renewal_proves_the_hold_and_measures_the_overlap() {
    let mut life = unproven();
    let effects = step(&mut life, renewed(29_680), 29_780);
    let overlap = Duration::from_millis(100);
    let retaken = false;
    assert!(effects.contains(&Effect::Emit(EventKind::ProvenAgain { overlap, retaken })));
    assert_eq!(proven_until(&life), at(29_680 + 29_680));
}

#[test]
fn lost_lease_is_reacquired_with_a_new_fence() {
    let mut life = lost_and_healing();
    let effects = step(&mut life, healed(10_010, 9), 10_030);
    assert!(effects.contains(&Effect::AdoptHealToken));
    assert_eq!(event_labels(&effects), ["proven_again"]);
    assert_eq!((life.fence(), proven_until(&life)), (Some(fence(9)), at(39_690)));
}

#[test]
fn overlap_with_another_holder_is_confirmed_once() {
    let mut life = lost_and_healing();
    assert_eq!(event_labels(&step(&mut life, Input::HealBusy, 10_030)), ["overlap_confirmed"]);
    assert_eq!(tick(&mut life, 10_200), [Effect::Heal]);
    assert_eq!(event_labels(&step(&mut life, Input::HealBusy, 10_210)), Vec::<&str>::new());
}

#[test]
fn heal_granted_after_release_is_undone() {
    let mut life = lost_and_healing();
    let effects = step(&mut life, Input::Release, 10_020);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::AlreadyLost));
    assert!(!life.is_finished(), "the heal's answer is still to come");
    assert_eq!(step(&mut life, healed(10_010, 9), 10_030), [Effect::UndoHeal]);
    assert!(life.is_finished());
}

#[test]
fn heal_with_unknown_outcome_is_undone_at_release() {
    let mut life = lost_and_healing();
    step(&mut life, Input::HealFailed { unknown: true }, 12_010);
    assert!(step(&mut life, Input::Release, 12_011).contains(&Effect::UndoHeal));

    let mut definite = lost_and_healing();
    step(&mut definite, Input::HealFailed { unknown: false }, 12_010);
    assert!(!step(&mut definite, Input::Release, 12_011).contains(&Effect::UndoHeal));
}

#[test]
fn heal_past_its_deadline_is_undone_and_retried() {
    let mut life = lost_and_healing();
    assert_eq!(step(&mut life, healed(10_010, 9), 45_000), [Effect::UndoHeal]);
    assert!(matches!(life.state(), HoldState::Unproven { not_owned: true, .. }));
    assert_eq!(tick(&mut life, 45_200), [Effect::Heal]);
}

#[test]
fn a_local_hold_has_no_fence_and_heals() {
    let mut life = local(class(|_| ()));
    assert_eq!((life.fence(), life.deadline().stop_at()), (None, Moment::FAR));
    assert_eq!(tick(&mut life, 100), [Effect::Heal]);
    let effects = step(&mut life, healed(100, 9), 120);
    let after = Duration::from_millis(120);
    assert_eq!(effects, [Effect::AdoptHealToken, Effect::Emit(EventKind::Healed { after })]);
    assert_eq!(life.deadline().stop_at(), at(29_780));
}

// The granted lifetime counts, less the lock delay.
#[test]
fn a_heal_with_another_ttl_counts_that_one() {
    let shorter = Input::Healed { sent_at: at(100), fence: fence(9), ttl: Some(Duration::from_secs(12)) };
    let mut life = local(class(|class| class.release.lock_delay = Duration::from_secs(2)));
    tick(&mut life, 100);
    step(&mut life, shorter, 120);
    assert_eq!(proven_until(&life), at(100 + 12_000 - 2_000 - 320));

    let longer = Input::Healed { sent_at: at(100), fence: fence(9), ttl: Some(Duration::from_secs(60)) };
    let mut life = local(class(|class| class.release.lock_delay = Duration::from_secs(2)));
    tick(&mut life, 100);
    step(&mut life, longer, 120);
    let failed = || released(ReleaseResult::Failed { unknown: true });
    step(&mut life, Input::Release, 200);
    step(&mut life, failed(), 300);
    tick(&mut life, 900);
    // The store keeps the lease for 60 s, two of them for the lock delay.
    let drift = drift_over(Duration::from_secs(60), Duration::from_secs(58), Duration::from_millis(320));
    let until = at(120 + 60_000) + drift;
    assert_eq!(finish(&step(&mut life, failed(), 1_000)), Some(ReleaseOutcome::Debt { until }));
}

#[test]
fn heal_conflict_follows_the_class() {
    let mut life = local(class(|class| class.acquire.on_heal_conflict = OnFailure::Fence));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert!(abandoned(&effects, Loss::HealConflict));

    let mut life = local(class(|class| class.acquire.on_heal_conflict = OnFailure::Continue));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert_eq!(event_labels(&effects), ["overlap_confirmed"]);
    assert!(matches!(life.state(), HoldState::LocalOnly { confirmed: true, .. }));
}

#[test]
fn possible_grant_of_a_local_only_hold_is_undone() {
    let mut life = HoldMachine::local_only(class(|_| ()), 7, true, at(0));
    let effects = step(&mut life, Input::Release, 10);
    assert!(effects.contains(&Effect::UndoHeal), "{effects:?}");
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Released));
}

// A call in flight could be granted after the undo.
#[test]
fn lost_hold_undoes_its_heal_when_no_call_is_in_flight() {
    let lost = || Input::ForceEnd(Loss::Broken);
    let mut idle = HoldMachine::local_only(class(|_| ()), 7, true, at(0));
    assert!(step(&mut idle, lost(), 50).contains(&Effect::UndoHeal));

    let mut healing = HoldMachine::local_only(class(|_| ()), 7, true, at(0));
    assert_eq!(tick(&mut healing, 100), [Effect::Heal]);
    assert!(!step(&mut healing, lost(), 110).contains(&Effect::UndoHeal));
    assert_eq!(step(&mut healing, healed(100, 9), 120), [Effect::UndoHeal]);
}

#[test]
fn overlap_is_reported_when_unproven_work_ends() {
    let mut life = unproven();
    let effects = step(&mut life, Input::Release, 30_680);
    let overlap = Duration::from_secs(1);
    assert!(effects.contains(&Effect::Emit(EventKind::OverlapEnded { overlap })));
}

#[test]
fn failures_do_not_stop_a_continue_class() {
    let mut life = unproven();
    for n in 0..20_u64 {
        let now = 30_000 + n * 6_000;
        step(&mut life, Input::RenewFailed { unknown: true }, now);
        let wait = life.wake_at().since(at(now));
        assert!(wait > Duration::ZERO && wait <= Duration::from_secs(5), "{wait:?}");
        assert_eq!(tick(&mut life, now + 5_000), [Effect::Renew]);
    }
}

#[test]
fn a_shadow_policy_counts_once_what_it_would_have_stopped() {
    let mut life = held(class(|class| class.mode = Enforcement::Shadow));
    let effects = tick(&mut life, 29_680);
    assert_eq!(event_labels(&effects), ["would_stop", "unproven"]);
    assert_eq!(life.deadline().stop_at(), Moment::FAR);
    let effects = step(&mut life, Input::NotOwned, 29_690);
    assert_eq!(event_labels(&effects), ["not_owned"]);
}

// A conflict that the class tolerated ends the hold at the next answer once the class fences.
#[test]
fn a_conflict_that_goes_on_is_fenced_once_the_class_fences() {
    let mut life = local(class(|class| class.acquire.on_heal_conflict = OnFailure::Continue));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert_eq!(event_labels(&effects), ["overlap_confirmed"]);
    let fences = class(|class| class.acquire.on_heal_conflict = OnFailure::Fence);
    step(&mut life, Input::PolicyChanged(fences), 120);
    assert_eq!(tick(&mut life, 400), [Effect::Heal]);
    let effects = step(&mut life, Input::HealBusy, 410);
    assert!(abandoned(&effects, Loss::HealConflict), "{effects:?}");
    assert_eq!(event_labels(&effects), ["overlap_ended", "abandoned"], "it is not confirmed twice");
}

// A shadow policy reports a conflict once, however often it recurs.
#[test]
fn shadow_policy_counts_a_repeated_conflict_once() {
    let mut life = local(class(|class| {
        class.acquire.on_heal_conflict = OnFailure::Fence;
        class.mode = Enforcement::Shadow;
    }));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert_eq!(event_labels(&effects), ["overlap_confirmed", "would_stop"]);
    assert_eq!(tick(&mut life, 400), [Effect::Heal]);
    let effects = step(&mut life, Input::HealBusy, 410);
    assert_eq!(event_labels(&effects), Vec::<&str>::new());
}
