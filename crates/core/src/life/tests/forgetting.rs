//! A hold that ends without giving its lease back, and of whose token an ask may still arrive: what that is granted is undone.

use super::*;
use crate::event::Cleared;
use crate::policy::ReleaseWhen;

/// An ask of its token may arrive for a minute, as after an acquire that was answered at its second try.
const MINUTE: u64 = 60_010;
/// The lease is surely over: touched at 10 ms, kept for 30 s, and the drift.
const OVER: u64 = 30_330;

fn late(class: Arc<Class>) -> Life {
    held(class).late_until(at(MINUTE))
}

fn forgotten(effects: &[Effect]) -> Option<Moment> {
    effects.iter().find_map(|effect| match effect {
        Effect::Forget { from } => Some(*from),
        _ => None,
    })
}

/// Fenced, and then let go of.
fn abandon(mut life: Life) -> Vec<Effect> {
    step(&mut life, Input::End(Loss::Broken), 100);
    let effects = step(&mut life, Input::Release, 200);
    assert_eq!(finish(&effects), Some(Outcome::Skipped));
    effects
}

#[test]
fn a_hold_that_was_abandoned_is_forgotten_when_its_lease_is_over() {
    assert_eq!(forgotten(&abandon(late(class(|_| ())))), Some(at(OVER)));
    assert_eq!(
        forgotten(&abandon(held(class(|_| ())))),
        None,
        "every ask was answered"
    );
}

/// It may arrive before the lease is over, too, and extends it then: found by the core's simulation, seed 21688.
#[test]
fn not_if_everything_has_arrived_when_it_ends() {
    let until = |millis| held(class(|_| ())).late_until(at(millis));
    assert_eq!(forgotten(&abandon(until(200))), None);
    assert_eq!(forgotten(&abandon(until(201))), Some(at(OVER)));
}

#[test]
fn a_lease_that_is_gone_need_not_be_waited_for() {
    let mut life = late(class(|_| ()));
    tick(&mut life, 10_000);
    assert!(abandoned(
        &step(&mut life, Input::NotOwned, 10_010),
        Loss::NotOwned
    ));
    let effects = step(&mut life, Input::Release, 10_020);
    assert_eq!(forgotten(&effects), Some(at(10_020)));

    let mut life = late(class(going_on));
    tick(&mut life, 10_000);
    step(&mut life, Input::NotOwned, 10_010);
    let effects = step(&mut life, Input::Release, 10_020);
    assert_eq!(finish(&effects), Some(Outcome::AlreadyLost));
    assert_eq!(forgotten(&effects), Some(at(10_020)));
}

#[test]
fn a_lease_that_is_kept_is_left_alone_until_it_is_over() {
    let mut life = late(class(|class| class.release.when = ReleaseWhen::Expired));
    let effects = step(&mut life, Input::Release, 100);
    assert_eq!(finish(&effects), Some(Outcome::Kept { until: at(OVER) }));
    assert_eq!(forgotten(&effects), Some(at(OVER)));
}

/// A release leaves a tombstone, whatever it is answered; a renewal that was waited for does not.
#[test]
fn what_the_store_was_told_need_not_be_told_again() {
    for answer in [ReleaseAnswer::Released, ReleaseAnswer::NotOwned] {
        let mut life = late(class(|_| ()));
        assert!(life.leaves_tombstone());
        step(&mut life, Input::Release, 100);
        assert_eq!(forgotten(&step(&mut life, released(answer), 110)), None);
    }
    let mut life = late(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, Input::Release, 10_001);
    let effects = step(&mut life, Input::NotOwned, 10_500);
    assert_eq!(finish(&effects), Some(Outcome::AlreadyLost));
    assert_eq!(forgotten(&effects), Some(at(10_500)));
}

#[test]
fn a_debt_that_nobody_could_pay_goes_on_as_an_undo() {
    let failed = released(ReleaseAnswer::Failed { unknown: true });
    let owing = || {
        let mut life = late(class(|class| class.release.attempts = 1));
        step(&mut life, Input::Release, 100);
        step(&mut life, failed.clone(), 2_100);
        life
    };
    let effects = tick(&mut owing(), OVER);
    assert_eq!(
        (told(&effects), forgotten(&effects)),
        (vec!["debt_cleared"], Some(at(OVER)))
    );
    let mut paid = owing();
    tick(&mut paid, 2_200);
    let effects = step(&mut paid, released(ReleaseAnswer::Released), 2_210);
    assert_eq!(
        (told(&effects), forgotten(&effects)),
        (vec!["debt_cleared"], None)
    );
}

/// The lease that replaces a lost one has a token of its own: the old one is nobody's.
#[test]
fn a_hold_that_is_taken_again_forgets_the_token_that_it_had() {
    let mut life = late(class(going_on));
    tick(&mut life, 10_000);
    step(&mut life, Input::NotOwned, 10_010);
    let effects = step(&mut life, healed(10_010, 9), 10_030);
    let old = effects
        .iter()
        .position(|effect| *effect == Effect::Forget { from: at(10_030) });
    let new = effects.iter().position(|effect| *effect == Effect::TakeOver);
    assert!(old.is_some() && old < new, "{effects:?}");
    // Of the new one, too, a try may be on its way, for a minute from when it was heard.
    step(&mut life, Input::End(Loss::Broken), 10_040);
    let effects = step(&mut life, Input::Release, 10_050);
    assert_eq!(forgotten(&effects), Some(at(10_030 + 30_320)));
}

#[test]
fn a_local_hold_has_nothing_to_forget_until_it_is_healed() {
    let mut life = local(class(|_| ()));
    assert!(!life.leaves_tombstone());
    tick(&mut life, 100);
    assert_eq!(forgotten(&step(&mut life, healed(100, 9), 120)), None);
    assert!(life.leaves_tombstone());
    step(&mut life, Input::End(Loss::Broken), 130);
    let effects = step(&mut life, Input::Release, 140);
    assert_eq!(forgotten(&effects), Some(at(120 + 30_320)));
}

#[test]
fn an_undo_waits_for_its_time_and_is_the_last_word() {
    let mut life = Life::undo(class(|_| ()), 7, at(OVER));
    assert!(life.leaves_tombstone());
    assert_eq!(life.wake_at(), at(OVER));
    assert_eq!(tick(&mut life, OVER - 1), []);
    assert_eq!(tick(&mut life, OVER), [Effect::Release { attempt: 1 }]);
    step(
        &mut life,
        released(ReleaseAnswer::Failed { unknown: true }),
        OVER + 2_000,
    );
    let effects = tick(&mut life, OVER + 60_000 + 30_320);
    let how = Cleared::Expired;
    assert_eq!(effects, [Effect::Emit(What::Undone { how })]);
}
