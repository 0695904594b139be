//! The deadline, renewals and renewal failures.

use super::*;

#[test]
fn deadline_counts_from_send_time_less_drift_and_grace() {
    let life = held(class(|class| class.stop_grace = Duration::from_secs(3)));
    assert_eq!(life.deadline().stop_at(), at(30_000 - 320 - 3_000));
    assert_eq!(life.fence(), Some(fence(5)));
}

#[test]
fn a_grant_with_another_ttl_counts_that_one() {
    let given = Grant::new(fence(5)).with_ttl(Duration::from_secs(20));
    let life = HoldMachine::granted(class(|_| ()), 7, at(0), given, at(10));
    assert_eq!(life.deadline().stop_at(), at(20_000 - 320));
}

#[test]
fn renewal_is_sent_once_and_slightly_early() {
    let mut life = held(class(|_| ()));
    let due = life.wake_at();
    assert!(due > at(9_000) && due <= at(10_000), "{due:?}");
    assert_eq!(tick(&mut life, 10_000), [Effect::Renew]);
    assert_eq!(tick(&mut life, 10_001), [], "one call at a time");
    assert_eq!(life.wake_at(), at(29_680), "only the deadline is left to watch");
}

#[test]
fn renewals_of_different_holds_are_spread() {
    let due = |seed| HoldMachine::granted(class(|_| ()), seed, at(0), grant(5), at(0)).wake_at();
    let all: std::collections::BTreeSet<_> = (0..20).map(due).collect();
    // About 25 lines of the shared grid lie within the jitter.
    assert!(all.len() > 8, "{all:?}");
}

#[test]
fn renewal_deadline_counts_from_send_time() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let effects = step(&mut life, renewed(10_000), 11_500);
    assert_eq!(event_labels(&effects), ["renewed"]);
    assert_eq!(life.deadline().stop_at(), at(39_680));
}

#[test]
fn a_class_without_renewal_sends_no_renewal() {
    let mut life = held(class(|class| class.renew.every = None));
    assert_eq!(tick(&mut life, 29_679), []);
    assert!(abandoned(&tick(&mut life, 29_680), Loss::Deadline));
}

#[test]
fn three_failures_fence_the_hold_before_the_deadline() {
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
    assert_eq!(life.state(), HoldState::Lost(Loss::MaxFailures));
}

#[test]
fn retries_come_sooner_than_the_next_regular_renewal() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, unknown(), 12_000);
    let again = life.wake_at().since(at(12_000));
    assert!(again >= Duration::from_millis(25) && again < Duration::from_secs(8), "{again:?}");
}

// Jitter subtracts at most a quarter, and no delay exceeds three quarters of the renewal interval.
#[test]
fn remaining_time_is_divided_among_the_attempts() {
    let (mut soonest, mut latest) = ([Duration::MAX; 2], [Duration::ZERO; 2]);
    for seed in 0..500 {
        let mut life = HoldMachine::granted(class(|_| ()), seed, at(0), grant(5), at(10));
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
    // At 12 s, 15,680 ms are left for two attempts, 1 : 2. At 20 s, 7,680 ms for one, limited by
    // the interval of 10 s.
    for ((soonest, latest), whole) in soonest.into_iter().zip(latest).zip([15_680 / 3, 7_500]) {
        let whole = Duration::from_millis(whole);
        let about = Duration::from_millis(20);
        assert!(latest <= whole + about && latest >= whole - about, "{latest:?} of {whole:?}");
        let least = whole * 3 / 4;
        assert!(soonest + about >= least && soonest <= least + about, "{soonest:?} of {least:?}");
    }
}

#[test]
fn a_success_resets_the_failure_count() {
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
    assert!(effects.contains(&Effect::Emit(EventKind::RenewFailed { failures: 1, unknown: true })));
}

#[test]
fn late_renewal_answer_does_not_revive_a_fenced_hold() {
    let mut life = held(class(|class| class.renew.timeout = Duration::from_secs(25)));
    tick(&mut life, 10_000);
    assert_eq!(tick(&mut life, 29_679), []);
    assert!(abandoned(&tick(&mut life, 29_680), Loss::Deadline));
    assert_eq!(step(&mut life, renewed(10_000), 30_000), []);
    assert_eq!(life.state(), HoldState::Lost(Loss::Deadline));
    assert_eq!(life.deadline().stop_at(), Moment::ZERO);
}

#[test]
fn deadline_is_judged_before_a_late_answer() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let effects = step(&mut life, renewed(10_000), 29_680);
    assert!(abandoned(&effects, Loss::Deadline), "{effects:?}");
    assert_eq!(event_labels(&effects), ["abandoned"]);
}

#[test]
fn not_owned_ends_the_hold_at_once() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let effects = step(&mut life, Input::NotOwned, 10_010);
    assert!(abandoned(&effects, Loss::NotOwned));
    assert_eq!(event_labels(&effects), ["not_owned", "abandoned"]);
}

#[test]
fn an_abandoned_hold_neither_renews_nor_releases() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    step(&mut life, Input::NotOwned, 10_010);
    assert_eq!(tick(&mut life, 20_000), []);
    assert_eq!(life.wake_at(), Moment::FAR);
    let effects = step(&mut life, Input::Release, 20_001);
    assert_eq!(effects, [Effect::Finish(ReleaseOutcome::Skipped)]);
    assert!(life.is_finished());
}

#[test]
fn max_hold_ends_the_hold_although_renewals_succeed() {
    let mut life = held(class(|class| class.max_hold = Some(Duration::from_secs(35))));
    tick(&mut life, 10_000);
    step(&mut life, renewed(10_000), 10_010);
    assert_eq!(life.deadline().stop_at(), at(35_010), "the limit comes before the lease's own end");
    tick(&mut life, 20_000);
    step(&mut life, renewed(20_000), 20_010);
    tick(&mut life, 30_000);
    assert!(abandoned(&tick(&mut life, 35_010), Loss::MaxHold));
}

#[test]
fn forced_end_applies_to_every_class() {
    for loss in [Loss::Broken, Loss::Shutdown, Loss::KeeperGone] {
        let mut life = held(class(continuing));
        assert!(abandoned(&step(&mut life, Input::ForceEnd(loss), 100), loss));
        assert_eq!(step(&mut life, Input::ForceEnd(loss), 101), [], "once");
    }
}

#[test]
fn a_jump_of_the_store_clock_is_reported() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    let left = Some(Duration::from_secs(15));
    let sent_at = at(10_000);
    let effects = step(&mut life, Input::Renewed { sent_at, remaining_before: left }, 10_010);
    assert_eq!(event_labels(&effects), ["clock_jump", "renewed"]);
}
