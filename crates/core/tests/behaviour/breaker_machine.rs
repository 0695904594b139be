//! Rules of the breaker that hold to the millisecond. `breaker.rs` tests it in front of a store.

use std::time::Duration;

use leasehold_core::breaker::{Admission, Breaker};
use leasehold_core::clock::Moment;

// The breaker opens at the fifth failure in a row.
const FAILURES_TO_OPEN: u32 = 5;

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

#[test]
fn opens_after_repeated_failures_only() {
    let mut breaker = Breaker::default();
    for _ in 0..FAILURES_TO_OPEN - 1 {
        breaker.record_failure(at(0), false);
        assert_eq!(breaker.admit(at(0)), Admission::Pass);
    }
    breaker.record_failure(at(0), false);
    assert_eq!(breaker.admit(at(0)), Admission::Refuse { until: at(250) });
}

#[test]
fn one_success_resets_the_failure_count() {
    let mut breaker = Breaker::default();
    for _ in 0..100 {
        (0..FAILURES_TO_OPEN - 1).for_each(|_| breaker.record_failure(at(0), false));
        breaker.record_success();
    }
    assert_eq!(breaker.admit(at(0)), Admission::Pass);
}

#[test]
fn one_probe_at_a_time() {
    let mut breaker = Breaker::default();
    (0..FAILURES_TO_OPEN).for_each(|_| breaker.record_failure(at(0), false));
    assert_eq!(breaker.admit(at(300)), Admission::Probe);
    assert!(matches!(breaker.admit(at(300)), Admission::Refuse { .. }));
    breaker.record_probe_abandoned();
    assert_eq!(breaker.admit(at(300)), Admission::Probe);
    breaker.record_failure(at(300), true);
    assert_eq!(breaker.admit(at(500)), Admission::Refuse { until: at(800) });
    assert_eq!(breaker.admit(at(800)), Admission::Probe);
    breaker.record_success();
    assert_eq!(breaker.admit(at(800)), Admission::Pass);
}

#[test]
fn probe_delay_grows_up_to_a_limit() {
    let mut breaker = Breaker::default();
    (0..FAILURES_TO_OPEN).for_each(|_| breaker.record_failure(at(0), false));
    let mut now = at(250);
    for pause in [500, 1_000, 2_000, 4_000, 5_000, 5_000] {
        assert_eq!(breaker.admit(now), Admission::Probe);
        breaker.record_failure(now, true);
        let until = now + Duration::from_millis(pause);
        assert_eq!(breaker.admit(now), Admission::Refuse { until });
        now = until;
    }
}

// The request with unknown outcome that opens the breaker becomes its probe; no later one does.
#[test]
fn unknown_outcome_that_opens_the_breaker_becomes_the_probe() {
    let mut breaker = Breaker::default();
    (1..FAILURES_TO_OPEN).for_each(|_| assert!(!breaker.record_unknown(at(0))));
    assert_eq!(breaker.admit(at(0)), Admission::Pass);
    assert!(breaker.record_unknown(at(0)));
    assert!(!breaker.record_unknown(at(0)), "there is one already");
    assert_eq!(breaker.admit(at(300)), Admission::Refuse { until: at(250) });
    breaker.record_failure(at(300), true);
    assert_eq!(breaker.admit(at(799)), Admission::Refuse { until: at(800) });
    assert_eq!(breaker.admit(at(800)), Admission::Probe);
    assert!(!breaker.record_unknown(at(800)), "an ask from before");
}

// Requests in flight when the breaker opened fail one after the other and must not delay the
// probe.
#[test]
fn only_the_probe_reports_the_probe_result() {
    let mut breaker = Breaker::default();
    (0..FAILURES_TO_OPEN).for_each(|_| breaker.record_failure(at(0), false));
    (0..50).for_each(|_| breaker.record_failure(at(100), false));
    assert_eq!(breaker.admit(at(200)), Admission::Refuse { until: at(250) });
    assert_eq!(breaker.admit(at(250)), Admission::Probe);
    breaker.record_failure(at(260), false);
    assert_eq!(breaker.admit(at(270)), Admission::Refuse { until: at(250) }, "the probe is still on its way");
    breaker.record_failure(at(280), true);
    assert_eq!(breaker.admit(at(779)), Admission::Refuse { until: at(780) });
    assert_eq!(breaker.admit(at(780)), Admission::Probe);
}
