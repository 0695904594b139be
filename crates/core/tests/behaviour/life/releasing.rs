//! Releases: attempts, the meaning of their answers, and debt.

use super::*;
use leasehold_core::event::DebtResolution;
use leasehold_core::policy::ReleaseWhen;

const UNKNOWN_OUTCOME: ReleaseResult = ReleaseResult::Failed { unknown: true };
const NOT_APPLIED: ReleaseResult = ReleaseResult::Failed { unknown: false };

#[test]
fn released_at_the_first_attempt() {
    let mut life = held(class(|_| ()));
    assert_eq!(step(&mut life, Input::Release, 100), [Effect::Release { attempt: 1 }]);
    let effects = step(&mut life, released(ReleaseResult::Released), 110);
    assert_eq!(
        (event_labels(&effects), finish(&effects)),
        (vec!["released"], Some(ReleaseOutcome::Released))
    );
    assert!(life.is_finished());
}

#[test]
fn not_owned_at_a_first_clean_attempt_is_already_lost() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    let effects = step(&mut life, released(ReleaseResult::NotOwned), 110);
    assert_eq!(event_labels(&effects), ["not_owned", "already_lost"]);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::AlreadyLost));
}

#[test]
fn not_owned_after_an_ambiguous_attempt_is_released() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    let effects = step(&mut life, released(UNKNOWN_OUTCOME), 2_100);
    assert_eq!(effects.last(), Some(&Effect::Release { attempt: 2 }));
    let effects = step(&mut life, released(ReleaseResult::NotOwned), 2_110);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Released));
}

#[test]
fn not_owned_after_a_definite_failure_is_already_lost() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    step(&mut life, released(NOT_APPLIED), 110);
    let effects = step(&mut life, released(ReleaseResult::NotOwned), 120);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::AlreadyLost));
}

#[test]
fn attempts_that_all_fail_become_a_debt_that_is_collected() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    step(&mut life, released(UNKNOWN_OUTCOME), 2_100);
    let effects = step(&mut life, released(UNKNOWN_OUTCOME), 4_100);
    assert_eq!(event_labels(&effects), ["release_failed", "debt"]);
    // Last touched when the grant's response arrived, at 10 ms.
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Debt { until: at(30_330) }));
    let due = life.wake_at();
    assert!(due > at(4_100) && due <= at(4_200), "{due:?}");
    assert_eq!(tick(&mut life, 4_200), [Effect::Release { attempt: 3 }]);
    step(&mut life, released(UNKNOWN_OUTCOME), 6_200);
    assert!(life.wake_at() > at(6_200));
    tick(&mut life, 6_400);
    let effects = step(&mut life, released(ReleaseResult::NotOwned), 6_410);
    assert!(
        matches!(&effects[..], [Effect::Emit(EventKind::DebtCleared { how: DebtResolution::Released, .. })]),
        "{effects:?}"
    );
    assert!(life.is_finished());
}

#[test]
fn a_debt_ends_when_the_lease_must_have_expired() {
    let mut life = held(class(|class| class.release.attempts = 1));
    step(&mut life, Input::Release, 100);
    step(&mut life, released(UNKNOWN_OUTCOME), 2_100);
    let effects = tick(&mut life, 30_330);
    assert!(matches!(
        &effects[..],
        [Effect::Emit(EventKind::DebtCleared { how: DebtResolution::Expired, .. })]
    ));
    assert!(life.is_finished());
}

#[test]
fn release_waits_for_a_renewal_in_flight() {
    for answer in [renewed(10_000), unknown()] {
        let mut life = held(class(|_| ()));
        tick(&mut life, 10_000);
        assert_eq!(step(&mut life, Input::Release, 10_001), []);
        assert_eq!(step(&mut life, answer, 10_500), [Effect::Release { attempt: 1 }]);
    }
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, Input::Release, 10_001);
    let effects = step(&mut life, Input::NotOwned, 10_500);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::AlreadyLost));
}

#[test]
fn a_class_that_holds_to_the_ttl_does_not_release() {
    let mut life = held(class(|class| class.release.when = ReleaseWhen::Expired));
    let effects = step(&mut life, Input::Release, 100);
    assert_eq!(event_labels(&effects), ["kept"]);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Kept { until: at(30_330) }));
    assert!(life.is_finished());
}

#[test]
fn kept_is_reported_after_the_renewal_in_flight() {
    for answer in [renewed(10_000), unknown()] {
        let mut life = held(class(|class| class.release.when = ReleaseWhen::Expired));
        tick(&mut life, 10_000);
        assert_eq!(step(&mut life, Input::Release, 10_500), []);
        // Touched now at the latest; then it lasts for 30 s and the drift.
        let effects = step(&mut life, answer, 12_000);
        assert_eq!(event_labels(&effects), ["kept"]);
        assert_eq!(finish(&effects), Some(ReleaseOutcome::Kept { until: at(42_320) }));
    }
}

#[test]
fn shutdown_releases_a_lease_that_is_still_proven() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::ForceEnd(Loss::Shutdown), 100);
    assert_eq!(step(&mut life, Input::Release, 110), [Effect::Release { attempt: 1 }]);

    let mut late = held(class(|_| ()));
    step(&mut late, Input::ForceEnd(Loss::Shutdown), 100);
    let effects = step(&mut late, Input::Release, 29_680);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Skipped), "past the deadline nobody knows whose it is");
}

#[test]
fn shutdown_of_a_lost_lease_does_not_wait_for_its_heal() {
    let mut life = held(class(continuing));
    tick(&mut life, 10_000);
    assert!(step(&mut life, Input::NotOwned, 10_010).contains(&Effect::Heal));
    step(&mut life, Input::ForceEnd(Loss::Shutdown), 10_020);
    let effects = step(&mut life, Input::Release, 10_030);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Skipped));
    assert_eq!(step(&mut life, healed(10_010, 9), 10_040), [Effect::UndoHeal]);
    assert!(life.is_finished());
}

#[test]
fn undo_is_sent_at_once_and_retried_until_answered() {
    let mut life = HoldMachine::undo(class(|_| ()), 7, at(0));
    assert_eq!(tick(&mut life, 0), [Effect::Release { attempt: 1 }]);
    assert_eq!(step(&mut life, released(UNKNOWN_OUTCOME), 2_000), []);
    assert_eq!(tick(&mut life, 2_200), [Effect::Release { attempt: 2 }]);
    let effects = step(&mut life, released(ReleaseResult::NotOwned), 2_210);
    let how = DebtResolution::Released;
    assert_eq!(effects, [Effect::Emit(EventKind::Undone { how })]);
    assert!(life.is_finished());
}

#[test]
fn undo_ends_when_the_lease_must_have_expired() {
    let mut life =
        HoldMachine::undo(class(|class| class.release.lock_delay = Duration::from_secs(7)), 7, at(0));
    tick(&mut life, 0);
    step(&mut life, released(UNKNOWN_OUTCOME), 2_000);
    let how = DebtResolution::Expired;
    // The request may arrive during the tombstone's lifetime, and its lease then lasts for TTL,
    // lock delay and drift. With the acquire timeout as the limit, a late request left a lease
    // without an owner: found by the client simulation, seed 1002378.
    // The drift is 320 ms for the TTL, and in proportion more with the lock delay.
    let over = 60_000 + 30_000 + 7_000 + 395;
    assert_eq!(tick(&mut life, over - 1), [Effect::Release { attempt: 2 }]);
    assert_eq!(tick(&mut life, over), [Effect::Emit(EventKind::Undone { how })]);
    step(&mut life, released(UNKNOWN_OUTCOME), over + 10);
    assert!(life.is_finished());
}

// Both events reported the whole time, so `held_seconds` counted it twice: found by the client
// simulation, seed 13.
#[test]
fn held_time_is_reported_once_after_a_shutdown() {
    let mut life = held(class(|_| ()));
    let mut effects = step(&mut life, Input::ForceEnd(Loss::Shutdown), 1_010);
    effects.extend(step(&mut life, Input::Release, 1_100));
    effects.extend(step(&mut life, released(ReleaseResult::Released), 1_510));
    assert_eq!(event_labels(&effects), ["abandoned", "released"]);
    let spans: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Emit(EventKind::Abandoned { held, .. } | EventKind::Released { held, .. }) => {
                Some(held.as_millis())
            }
            _ => None,
        })
        .collect();
    assert_eq!(spans, [1_000, 500]);
}
