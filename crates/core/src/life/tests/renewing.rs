//! While holding: the deadline, renewals, strikes.

use super::*;

#[test]
fn the_deadline_counts_from_the_sending_and_takes_off_drift_and_grace() {
    let life = held(class(|class| class.stop_grace = Duration::from_secs(3)));
    assert_eq!(life.deadline(), at(30_000 - 320 - 3_000));
    assert_eq!(life.fence(), Some(fence(5)));
}

#[test]
fn a_grant_with_another_ttl_counts_that_one() {
    let given = Grant {
        fence: fence(5),
        ttl: Some(Duration::from_secs(20)),
    };
    let life = Life::granted(class(|_| ()), 7, at(0), given, at(10));
    assert_eq!(life.deadline(), at(20_000 - 320));
}

#[test]
fn it_is_renewed_a_little_before_its_time_and_once() {
    let mut life = held(class(|_| ()));
    let due = life.wake_at();
    assert!(due > at(9_000) && due <= at(10_000), "{due:?}");
    assert_eq!(tick(&mut life, 10_000), [Effect::Renew]);
    assert_eq!(tick(&mut life, 10_001), [], "one call at a time");
    assert_eq!(life.wake_at(), at(29_680), "only the deadline is left to watch");
}

#[test]
fn two_lives_are_not_renewed_in_step() {
    let due = |seed| Life::granted(class(|_| ()), seed, at(0), grant(5), at(0)).wake_at();
    let all: std::collections::BTreeSet<_> = (0..20).map(due).collect();
    // About 25 lines of the shared grid lie within the jitter.
    assert!(all.len() > 8, "{all:?}");
}

#[test]
fn a_renewal_moves_the_deadline_from_its_sending_not_its_answer() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let effects = step(&mut life, renewed(10_000), 11_500);
    assert_eq!(told(&effects), ["renewed"]);
    assert_eq!(life.deadline(), at(39_680));
}

#[test]
fn a_class_that_does_not_renew_never_asks() {
    let mut life = held(class(|class| class.renew.every = None));
    assert_eq!(tick(&mut life, 29_679), []);
    assert!(abandoned(&tick(&mut life, 29_680), Loss::Deadline));
}

#[test]
fn three_strikes_fence_it_before_the_deadline() {
    let mut life = held(class(|_| ()));
    let mut now = 10_000;
    for strike in 1..=3 {
        assert_eq!(tick(&mut life, now), [Effect::Renew], "strike {strike}");
        now += 2_000;
        let effects = step(&mut life, unknown(), now);
        assert_eq!(abandoned(&effects, Loss::MaxFailures), strike == 3, "{effects:?}");
        now = (life.wake_at().since(at(0)).as_millis() as u64).clamp(now, 29_000) + 1;
    }
    assert!(now < 29_680, "the third strike came at {now}");
    assert_eq!(life.state(), State::Lost(Loss::MaxFailures));
}

#[test]
fn retries_come_sooner_than_the_next_regular_renewal() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, unknown(), 12_000);
    let again = life.wake_at().since(at(12_000));
    assert!(
        again >= Duration::from_millis(25) && again < Duration::from_secs(8),
        "{again:?}"
    );
}

/// Less a quarter at random at most, and never later than three quarters of a cadence.
#[test]
fn the_time_that_is_left_is_parted_among_the_attempts() {
    let (mut soonest, mut latest) = ([Duration::MAX; 2], [Duration::ZERO; 2]);
    for seed in 0..500 {
        let mut life = Life::granted(class(|_| ()), seed, at(0), grant(5), at(10));
        let mut heard = 12_000;
        for strike in 0..2 {
            tick(&mut life, heard - 2_000);
            step(&mut life, unknown(), heard);
            let pause = life.wake_at().since(at(heard));
            soonest[strike] = soonest[strike].min(pause);
            latest[strike] = latest[strike].max(pause);
            heard = 20_000;
        }
    }
    // At 12 s 15,680 ms are left for two more, 1 : 2; at 20 s 7,680 ms for one, and a cadence is 10 s.
    for ((soonest, latest), whole) in soonest.into_iter().zip(latest).zip([15_680 / 3, 7_500]) {
        let whole = Duration::from_millis(whole);
        let about = Duration::from_millis(20);
        assert!(
            latest <= whole + about && latest >= whole - about,
            "{latest:?} of {whole:?}"
        );
        let least = whole * 3 / 4;
        assert!(
            soonest + about >= least && soonest <= least + about,
            "{soonest:?} of {least:?}"
        );
    }
}

#[test]
fn a_success_starts_the_strikes_anew() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, unknown(), 10_100);
    let mut now = life.wake_at().since(at(0)).as_millis() as u64 + 1;
    tick(&mut life, now);
    step(&mut life, unknown(), now + 1);
    now = life.wake_at().since(at(0)).as_millis() as u64 + 1;
    tick(&mut life, now);
    step(&mut life, renewed(now), now + 1);
    now = life.wake_at().since(at(0)).as_millis() as u64 + 1;
    tick(&mut life, now);
    let effects = step(&mut life, unknown(), now + 1);
    assert!(effects.contains(&Effect::Emit(What::RenewFailed {
        failures: 1,
        unknown: true
    })));
}

#[test]
fn the_deadline_fences_it_while_a_renewal_hangs_and_its_late_answer_changes_nothing() {
    let mut life = held(class(|class| class.renew.timeout = Duration::from_secs(25)));
    tick(&mut life, 10_000);
    assert_eq!(tick(&mut life, 29_679), []);
    assert!(abandoned(&tick(&mut life, 29_680), Loss::Deadline));
    assert_eq!(step(&mut life, renewed(10_000), 30_000), []);
    assert_eq!(life.state(), State::Lost(Loss::Deadline));
    assert_eq!(life.deadline(), Moment::ZERO);
}

#[test]
fn an_answer_after_a_pause_finds_the_hold_as_the_deadline_left_it() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let effects = step(&mut life, renewed(10_000), 29_680);
    assert!(abandoned(&effects, Loss::Deadline), "{effects:?}");
    assert_eq!(told(&effects), ["abandoned"]);
}

#[test]
fn not_owned_ends_it_at_once() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let effects = step(&mut life, Input::NotOwned, 10_010);
    assert!(abandoned(&effects, Loss::NotOwned));
    assert_eq!(told(&effects), ["not_owned", "abandoned"]);
}

#[test]
fn an_abandoned_hold_neither_renews_nor_releases() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, Input::NotOwned, 10_010);
    assert_eq!(tick(&mut life, 20_000), []);
    assert_eq!(life.wake_at(), Moment::FAR);
    let effects = step(&mut life, Input::Release, 20_001);
    assert_eq!(effects, [Effect::Finish(Outcome::Skipped)]);
    assert!(life.finished());
}

#[test]
fn max_hold_ends_it_although_renewals_succeed() {
    let mut life = held(class(|class| class.max_hold = Some(Duration::from_secs(35))));
    tick(&mut life, 10_000);
    step(&mut life, renewed(10_000), 10_010);
    assert_eq!(
        life.deadline(),
        at(35_010),
        "the limit comes before the lease's own end"
    );
    tick(&mut life, 20_000);
    step(&mut life, renewed(20_000), 20_010);
    tick(&mut life, 30_000);
    assert!(abandoned(&tick(&mut life, 35_010), Loss::MaxHold));
}

#[test]
fn it_can_be_ended_from_outside_whatever_its_class() {
    for loss in [Loss::Broken, Loss::Shutdown, Loss::KeeperGone] {
        let mut life = held(class(going_on));
        assert!(abandoned(&step(&mut life, Input::End(loss), 100), loss));
        assert_eq!(step(&mut life, Input::End(loss), 101), [], "once");
    }
}

#[test]
fn a_store_clock_that_jumped_is_told() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let left = Some(Duration::from_secs(15));
    let sent_at = at(10_000);
    let effects = step(
        &mut life,
        Input::Renewed {
            sent_at,
            was_left: left,
        },
        10_010,
    );
    assert_eq!(told(&effects), ["clock_jump", "renewed"]);
}
