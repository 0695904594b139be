//! Giving back: attempts, what their answers mean, and debt.

use super::*;
use crate::event::Cleared;
use crate::policy::ReleaseWhen;

const FAILED: ReleaseAnswer = ReleaseAnswer::Failed { unknown: true };
const REFUSED: ReleaseAnswer = ReleaseAnswer::Failed { unknown: false };

#[test]
fn released_at_the_first_attempt() {
    let mut life = held(class(|_| ()));
    assert_eq!(
        step(&mut life, Input::Release, 100),
        [Effect::Release { attempt: 1 }]
    );
    let effects = step(&mut life, released(ReleaseAnswer::Released), 110);
    assert_eq!(
        (told(&effects), finish(&effects)),
        (vec!["released"], Some(Outcome::Released))
    );
    assert!(life.finished());
}

#[test]
fn not_owned_at_a_first_clean_attempt_is_already_lost() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    let effects = step(&mut life, released(ReleaseAnswer::NotOwned), 110);
    assert_eq!(told(&effects), ["not_owned", "already_lost"]);
    assert_eq!(finish(&effects), Some(Outcome::AlreadyLost));
}

#[test]
fn not_owned_after_an_ambiguous_attempt_is_released() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    let effects = step(&mut life, released(FAILED), 2_100);
    assert_eq!(effects.last(), Some(&Effect::Release { attempt: 2 }));
    let effects = step(&mut life, released(ReleaseAnswer::NotOwned), 2_110);
    assert_eq!(finish(&effects), Some(Outcome::Released));
}

#[test]
fn not_owned_after_a_definite_failure_is_already_lost() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    step(&mut life, released(REFUSED), 110);
    let effects = step(&mut life, released(ReleaseAnswer::NotOwned), 120);
    assert_eq!(finish(&effects), Some(Outcome::AlreadyLost));
}

#[test]
fn attempts_that_all_fail_become_a_debt_that_is_collected() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::Release, 100);
    step(&mut life, released(FAILED), 2_100);
    let effects = step(&mut life, released(FAILED), 4_100);
    assert_eq!(told(&effects), ["release_failed", "debt"]);
    // Last touched when the grant was heard, at 10 ms.
    assert_eq!(finish(&effects), Some(Outcome::Debt { until: at(30_330) }));
    let due = life.wake_at();
    assert!(due > at(4_100) && due <= at(4_200), "{due:?}");
    assert_eq!(tick(&mut life, 4_200), [Effect::Release { attempt: 3 }]);
    step(&mut life, released(FAILED), 6_200);
    assert!(life.wake_at() > at(6_200));
    tick(&mut life, 6_400);
    let effects = step(&mut life, released(ReleaseAnswer::NotOwned), 6_410);
    assert!(
        matches!(
            &effects[..],
            [Effect::Emit(What::DebtCleared {
                how: Cleared::Released,
                ..
            })]
        ),
        "{effects:?}"
    );
    assert!(life.finished());
}

#[test]
fn a_debt_ends_when_the_lease_is_surely_over() {
    let mut life = held(class(|class| class.release.attempts = 1));
    step(&mut life, Input::Release, 100);
    step(&mut life, released(FAILED), 2_100);
    let effects = tick(&mut life, 30_330);
    assert!(matches!(
        &effects[..],
        [Effect::Emit(What::DebtCleared {
            how: Cleared::Expired,
            ..
        })]
    ));
    assert!(life.finished());
}

#[test]
fn a_renewal_on_its_way_is_waited_for() {
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
    assert_eq!(finish(&effects), Some(Outcome::AlreadyLost));
}

#[test]
fn a_class_that_holds_to_the_ttl_does_not_release() {
    let mut life = held(class(|class| class.release.when = ReleaseWhen::Expired));
    let effects = step(&mut life, Input::Release, 100);
    assert_eq!(told(&effects), ["kept"]);
    assert_eq!(finish(&effects), Some(Outcome::Kept { until: at(30_330) }));
    assert!(life.finished());
}

#[test]
fn kept_is_said_when_no_renewal_is_on_its_way_any_more() {
    for answer in [renewed(10_000), unknown()] {
        let mut life = held(class(|class| class.release.when = ReleaseWhen::Expired));
        tick(&mut life, 10_000);
        assert_eq!(step(&mut life, Input::Release, 10_500), []);
        // Touched now at the latest, and then it lasts for 30 s and the drift.
        let effects = step(&mut life, answer, 12_000);
        assert_eq!(told(&effects), ["kept"]);
        assert_eq!(finish(&effects), Some(Outcome::Kept { until: at(42_320) }));
    }
}

#[test]
fn the_end_by_shutdown_gives_back_what_is_still_ours() {
    let mut life = held(class(|_| ()));
    step(&mut life, Input::End(Loss::Shutdown), 100);
    assert_eq!(
        step(&mut life, Input::Release, 110),
        [Effect::Release { attempt: 1 }]
    );

    let mut late = held(class(|_| ()));
    step(&mut late, Input::End(Loss::Shutdown), 100);
    let effects = step(&mut late, Input::Release, 29_680);
    assert_eq!(
        finish(&effects),
        Some(Outcome::Skipped),
        "past the deadline nobody knows whose it is"
    );
}

#[test]
fn the_end_by_shutdown_of_a_lease_that_is_gone_does_not_wait_for_its_heal() {
    let mut life = held(class(going_on));
    tick(&mut life, 10_000);
    assert!(step(&mut life, Input::NotOwned, 10_010).contains(&Effect::Heal));
    step(&mut life, Input::End(Loss::Shutdown), 10_020);
    let effects = step(&mut life, Input::Release, 10_030);
    assert_eq!(finish(&effects), Some(Outcome::Skipped));
    assert_eq!(step(&mut life, healed(10_010, 9), 10_040), [Effect::GiveBack]);
    assert!(life.finished());
}

#[test]
fn an_undo_is_sent_at_once_and_until_someone_answers() {
    let mut life = Life::undo(class(|_| ()), 7, at(0));
    assert_eq!(tick(&mut life, 0), [Effect::Release { attempt: 1 }]);
    assert_eq!(step(&mut life, released(FAILED), 2_000), []);
    assert_eq!(tick(&mut life, 2_200), [Effect::Release { attempt: 2 }]);
    let effects = step(&mut life, released(ReleaseAnswer::NotOwned), 2_210);
    let how = Cleared::Released;
    assert_eq!(effects, [Effect::Emit(What::Undone { how })]);
    assert!(life.finished());
}

#[test]
fn an_undo_gives_up_when_the_lease_would_be_over() {
    let mut life = Life::undo(
        class(|class| class.release.lock_delay = Duration::from_secs(7)),
        7,
        at(0),
    );
    tick(&mut life, 0);
    step(&mut life, released(FAILED), 2_000);
    let how = Cleared::Expired;
    // The ask may arrive for as long as a tombstone lives, and its lease is there for a TTL, lock delay and drift more. It once gave up
    // after the acquire's own time-out, and a late ask was granted to nobody: found by the client's simulation, seed 1002378.
    let over = 60_000 + 30_000 + 7_000 + 320;
    assert_eq!(tick(&mut life, over - 1), [Effect::Release { attempt: 2 }]);
    assert_eq!(tick(&mut life, over), [Effect::Emit(What::Undone { how })]);
    step(&mut life, released(FAILED), over + 10);
    assert!(life.finished());
}

/// Found by the simulation of the client, seed 13: both events told of the whole time, and `held_seconds` had it twice.
#[test]
fn a_hold_that_a_shutdown_ended_tells_every_second_once() {
    let mut life = held(class(|_| ()));
    let mut effects = step(&mut life, Input::End(Loss::Shutdown), 1_010);
    effects.extend(step(&mut life, Input::Release, 1_100));
    effects.extend(step(&mut life, released(ReleaseAnswer::Released), 1_510));
    assert_eq!(told(&effects), ["abandoned", "released"]);
    let spans: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Emit(What::Abandoned { held, .. } | What::Released { held, .. }) => {
                Some(held.as_millis())
            }
            _ => None,
        })
        .collect();
    assert_eq!(spans, [1_000, 500]);
}
