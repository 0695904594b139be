//! Policy changes while a lock is held.

use super::*;
use leasehold_core::policy::Enforcement;

fn changed(life: &mut HoldMachine, class: Arc<Class>, millis: u64) -> Vec<Effect> {
    step(life, Input::PolicyChanged(class), millis)
}

#[test]
fn wider_margins_count_at_once() {
    let mut life = held(class(|_| ()));
    let wider = class(|class| class.stop_grace = Duration::from_secs(5));
    assert_eq!(changed(&mut life, wider, 1_000), []);
    assert_eq!(life.deadline().stop_at(), at(24_680));
    let widest = class(|class| class.stop_grace = Duration::from_secs(29));
    assert!(abandoned(&changed(&mut life, widest, 2_000), Loss::Deadline));
}

#[test]
fn a_shorter_ttl_keeps_the_drift_of_the_current_lease() {
    let mut life = held(class(|_| ()));
    changed(&mut life, class(with_shorter_ttl), 500);
    assert!(life.deadline().stop_at() <= at(29_680), "{:?}", life.deadline().stop_at());
}

#[test]
fn a_shorter_ttl_keeps_the_drift_of_a_renewal_in_flight() {
    let mut life = held(class(|_| ()));
    tick(&mut life, 10_000);
    changed(&mut life, class(with_shorter_ttl), 10_001);
    step(&mut life, renewed(10_000), 10_010);
    assert_eq!(proven_until(&life), at(39_680));
}

#[test]
fn a_renewal_for_a_shorter_ttl_shortens_the_deadline_when_it_is_sent() {
    let mut life = held(class(|_| ()));
    assert_eq!(changed(&mut life, class(with_shorter_ttl), 4_000), [Effect::Renew]);
    // 5 s less 70 ms of drift; the old deadline would be 29.68 s.
    assert_eq!(life.deadline().stop_at(), at(8_930));
    step(&mut life, Input::RenewFailed { unknown: true }, 4_500);
    assert_eq!(life.deadline().stop_at(), at(8_930), "it may have been applied all the same");
    changed(&mut life, class(|_| ()), 4_501);
    assert_eq!(life.deadline().stop_at(), at(8_930), "and a policy that comes back does not undo it");
}

#[test]
fn a_renewal_for_a_shorter_ttl_counts_the_shorter_one() {
    let mut life = held(class(|_| ()));
    changed(&mut life, class(with_shorter_ttl), 4_000);
    step(&mut life, renewed(4_000), 4_010);
    assert_eq!(life.deadline().stop_at(), at(8_930));
}

#[test]
fn a_debt_counts_the_longest_ttl_that_may_have_been_applied() {
    let longer = |class: &mut Class| {
        class.ttl = Ttl::new(Duration::from_secs(60)).unwrap();
        class.drift = Duration::from_millis(620);
        class.release.attempts = 1;
    };
    let mut life = held(class(|_| ()));
    changed(&mut life, class(longer), 1_000);
    tick(&mut life, 10_000);
    step(&mut life, unknown(), 12_000);
    step(&mut life, Input::Release, 12_001);
    let effects = step(&mut life, released(ReleaseResult::Failed { unknown: true }), 14_000);
    assert_eq!(finish(&effects), Some(ReleaseOutcome::Debt { until: at(12_000 + 60_620) }));
}

#[test]
fn a_policy_that_starts_to_fence_stops_unproven_work() {
    let mut life = held(class(continuing));
    tick(&mut life, 29_680);
    assert!(abandoned(&changed(&mut life, class(|_| ()), 29_700), Loss::Deadline));

    let mut proven = held(class(continuing));
    assert_eq!(changed(&mut proven, class(|_| ()), 100), []);
    assert_eq!(proven.deadline().stop_at(), at(29_680));
}

#[test]
fn a_policy_that_stops_fencing_lets_work_go_on() {
    let mut life = held(class(|_| ()));
    changed(&mut life, class(continuing), 100);
    assert_eq!(life.deadline().stop_at(), Moment::FAR);
    assert!(event_labels(&tick(&mut life, 29_680)).contains(&"unproven"));
}

#[test]
fn max_hold_applies_when_a_shadow_policy_is_enforced() {
    let limited = |mode| {
        class(|class| {
            class.mode = mode;
            class.max_hold = Some(Duration::from_secs(40));
            class.renew.on_failure = OnFailure::Continue;
        })
    };
    let mut life = held(limited(Enforcement::Shadow));
    assert!(event_labels(&tick(&mut life, 40_010)).contains(&"would_stop"));
    let effects = changed(&mut life, limited(Enforcement::Enforce), 41_000);
    assert!(abandoned(&effects, Loss::MaxHold), "{effects:?}");
}

#[test]
fn a_new_renew_interval_counts_from_the_last_confirmed_request() {
    let mut life = held(class(|_| ()));
    let often = class(|class| class.renew.every = Some(Duration::from_secs(2)));
    changed(&mut life, often, 1_000);
    assert!(life.wake_at() > at(1_000) && life.wake_at() <= at(2_000), "{:?}", life.wake_at());
}

#[test]
fn a_policy_that_is_the_same_changes_nothing() {
    let mut life = held(class(|_| ()));
    let (due, deadline) = (life.wake_at(), life.deadline().stop_at());
    assert_eq!(changed(&mut life, class(|_| ()), 1_000), []);
    assert_eq!((life.wake_at(), life.deadline().stop_at()), (due, deadline));
}
