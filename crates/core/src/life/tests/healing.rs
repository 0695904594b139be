//! Without a lease that can be proven: `continue` classes and local-only holds.

use super::*;
use crate::policy::Enforcement;

/// A `continue` hold past its deadline, with a renewal on its way.
fn unproven() -> Life {
    let mut life = held(class(going_on));
    tick(&mut life, 10_000);
    step(&mut life, Input::RenewFailed { unknown: true }, 12_000);
    let effects = tick(&mut life, 29_680);
    assert!(effects.contains(&Effect::Emit(What::Unproven)), "{effects:?}");
    life
}

/// A `continue` hold whose lease is gone, with a heal on its way.
fn gone() -> Life {
    let mut life = held(class(going_on));
    tick(&mut life, 10_000);
    let effects = step(&mut life, Input::NotOwned, 10_010);
    assert_eq!(effects.last(), Some(&Effect::Heal));
    life
}

#[test]
fn work_goes_on_past_the_deadline_and_asks_again_at_once() {
    let mut life = held(class(going_on));
    life.due = Moment::FAR;
    let effects = tick(&mut life, 29_700);
    assert_eq!(effects, [Effect::Emit(What::Unproven), Effect::Renew]);
    assert_eq!(life.deadline(), Moment::FAR);
    let since = at(29_680);
    assert!(matches!(life.state(), State::Unproven { since: from, .. } if from == since));
}

#[test]
fn renewed_late_it_is_proven_again_and_the_overlap_is_measured() {
    let mut life = unproven();
    let effects = step(&mut life, renewed(29_680), 29_780);
    let overlap = Duration::from_millis(100);
    let retaken = false;
    assert!(effects.contains(&Effect::Emit(What::ProvenAgain { overlap, retaken })));
    assert_eq!(proven_until(&life), at(29_680 + 29_680));
}

#[test]
fn gone_and_free_it_is_taken_again_with_a_new_fence() {
    let mut life = gone();
    let effects = step(&mut life, healed(10_010, 9), 10_030);
    assert!(effects.contains(&Effect::TakeOver));
    assert_eq!(told(&effects), ["proven_again"]);
    assert_eq!((life.fence(), proven_until(&life)), (Some(fence(9)), at(39_690)));
}

#[test]
fn gone_and_taken_the_overlap_is_confirmed_once() {
    let mut life = gone();
    assert_eq!(
        told(&step(&mut life, Input::HealBusy, 10_030)),
        ["overlap_confirmed"]
    );
    assert_eq!(tick(&mut life, 10_200), [Effect::Heal]);
    assert_eq!(
        told(&step(&mut life, Input::HealBusy, 10_210)),
        Vec::<&str>::new()
    );
}

#[test]
fn a_grant_to_a_hold_that_is_over_is_given_back() {
    let mut life = gone();
    let effects = step(&mut life, Input::Release, 10_020);
    assert_eq!(finish(&effects), Some(Outcome::AlreadyLost));
    assert!(!life.finished(), "the heal's answer is still to come");
    assert_eq!(step(&mut life, healed(10_010, 9), 10_030), [Effect::GiveBack]);
    assert!(life.finished());
}

#[test]
fn a_heal_of_unknown_fate_is_given_back_when_the_hold_ends() {
    let mut life = gone();
    step(&mut life, Input::HealFailed { unknown: true }, 12_010);
    assert!(step(&mut life, Input::Release, 12_011).contains(&Effect::GiveBack));

    let mut definite = gone();
    step(&mut definite, Input::HealFailed { unknown: false }, 12_010);
    assert!(!step(&mut definite, Input::Release, 12_011).contains(&Effect::GiveBack));
}

#[test]
fn a_heal_that_comes_too_late_is_given_back_and_tried_again() {
    let mut life = gone();
    assert_eq!(step(&mut life, healed(10_010, 9), 45_000), [Effect::GiveBack]);
    assert!(matches!(life.state(), State::Unproven { gone: true, .. }));
    assert_eq!(tick(&mut life, 45_200), [Effect::Heal]);
}

#[test]
fn a_local_hold_has_no_fence_and_heals() {
    let mut life = local(class(|_| ()));
    assert_eq!((life.fence(), life.deadline()), (None, Moment::FAR));
    assert_eq!(tick(&mut life, 100), [Effect::Heal]);
    let effects = step(&mut life, healed(100, 9), 120);
    let after = Duration::from_millis(120);
    assert_eq!(effects, [Effect::TakeOver, Effect::Emit(What::Healed { after })]);
    assert_eq!(life.deadline(), at(29_780));
}

/// What the store grants counts, and what it keeps beyond that is its own.
#[test]
fn a_heal_with_another_ttl_counts_that_one() {
    let shorter = Input::Healed {
        sent_at: at(100),
        fence: fence(9),
        ttl: Some(Duration::from_secs(12)),
    };
    let mut life = local(class(|class| class.release.lock_delay = Duration::from_secs(2)));
    tick(&mut life, 100);
    step(&mut life, shorter, 120);
    assert_eq!(proven_until(&life), at(100 + 12_000 - 2_000 - 320));

    let longer = Input::Healed {
        sent_at: at(100),
        fence: fence(9),
        ttl: Some(Duration::from_secs(60)),
    };
    let mut life = local(class(|class| class.release.lock_delay = Duration::from_secs(2)));
    tick(&mut life, 100);
    step(&mut life, longer, 120);
    let failed = || released(ReleaseAnswer::Failed { unknown: true });
    step(&mut life, Input::Release, 200);
    step(&mut life, failed(), 300);
    tick(&mut life, 900);
    let until = at(120 + 60_000 + 320);
    assert_eq!(
        finish(&step(&mut life, failed(), 1_000)),
        Some(Outcome::Debt { until })
    );
}

#[test]
fn a_local_hold_that_finds_someone_there_does_as_its_class_says() {
    let mut life = local(class(|class| class.acquire.on_heal_conflict = OnFailure::Fence));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert!(abandoned(&effects, Loss::HealConflict));

    let mut life = local(class(|class| {
        class.acquire.on_heal_conflict = OnFailure::Continue
    }));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert_eq!(told(&effects), ["overlap_confirmed"]);
    assert!(matches!(life.state(), State::LocalOnly { confirmed: true, .. }));
}

#[test]
fn what_a_local_hold_s_acquire_may_have_left_is_given_back() {
    let mut life = Life::local_only(class(|_| ()), 7, true, at(0));
    let effects = step(&mut life, Input::Release, 10);
    assert!(effects.contains(&Effect::GiveBack), "{effects:?}");
    assert_eq!(finish(&effects), Some(Outcome::Released));
}

/// What is on its way could be granted after it was given back.
#[test]
fn a_hold_that_is_lost_gives_back_when_nothing_is_on_its_way() {
    let lost = || Input::End(Loss::Broken);
    let mut idle = Life::local_only(class(|_| ()), 7, true, at(0));
    assert!(step(&mut idle, lost(), 50).contains(&Effect::GiveBack));

    let mut healing = Life::local_only(class(|_| ()), 7, true, at(0));
    assert_eq!(tick(&mut healing, 100), [Effect::Heal]);
    assert!(!step(&mut healing, lost(), 110).contains(&Effect::GiveBack));
    assert_eq!(step(&mut healing, healed(100, 9), 120), [Effect::GiveBack]);
}

#[test]
fn the_overlap_is_told_when_the_work_ends_in_it() {
    let mut life = unproven();
    let effects = step(&mut life, Input::Release, 30_680);
    let overlap = Duration::from_secs(1);
    assert!(effects.contains(&Effect::Emit(What::OverlapEnded { overlap })));
}

#[test]
fn failures_do_not_stop_a_continue_class() {
    let mut life = unproven();
    for n in 0..20_u64 {
        let now = 30_000 + n * 6_000;
        step(&mut life, Input::RenewFailed { unknown: true }, now);
        let wait = life.wake_at().since(at(now));
        assert!(
            wait > Duration::ZERO && wait <= Duration::from_secs(5),
            "{wait:?}"
        );
        assert_eq!(tick(&mut life, now + 5_000), [Effect::Renew]);
    }
}

#[test]
fn a_shadow_policy_counts_once_what_it_would_have_stopped() {
    let mut life = held(class(|class| class.mode = Enforcement::Shadow));
    let effects = tick(&mut life, 29_680);
    assert_eq!(told(&effects), ["would_stop", "unproven"]);
    assert_eq!(life.deadline(), Moment::FAR);
    let effects = step(&mut life, Input::NotOwned, 29_690);
    assert_eq!(told(&effects), ["not_owned"]);
}

/// What was known while the class let it pass counts as soon as the class does not: the next answer ends it.
#[test]
fn a_conflict_that_goes_on_is_fenced_once_the_class_fences() {
    let mut life = local(class(|class| {
        class.acquire.on_heal_conflict = OnFailure::Continue
    }));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert_eq!(told(&effects), ["overlap_confirmed"]);
    let fences = class(|class| class.acquire.on_heal_conflict = OnFailure::Fence);
    step(&mut life, Input::PolicyChanged(fences), 120);
    assert_eq!(tick(&mut life, 400), [Effect::Heal]);
    let effects = step(&mut life, Input::HealBusy, 410);
    assert!(abandoned(&effects, Loss::HealConflict), "{effects:?}");
    assert_eq!(
        told(&effects),
        ["overlap_ended", "abandoned"],
        "it is not confirmed twice"
    );
}

/// A shadow counts a conflict once, however often it is seen.
#[test]
fn a_conflict_that_goes_on_is_counted_once_in_the_shadow() {
    let mut life = local(class(|class| {
        class.acquire.on_heal_conflict = OnFailure::Fence;
        class.mode = Enforcement::Shadow;
    }));
    tick(&mut life, 100);
    let effects = step(&mut life, Input::HealBusy, 110);
    assert_eq!(told(&effects), ["overlap_confirmed", "would_stop"]);
    assert_eq!(tick(&mut life, 400), [Effect::Heal]);
    let effects = step(&mut life, Input::HealBusy, 410);
    assert_eq!(told(&effects), Vec::<&str>::new());
}
