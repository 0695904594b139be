//! Rules of the acquire machine that hold to the millisecond. Rules for every sequence of responses
//! are property tests (`tests/sim/property/acquire.rs`). Time is in plain milliseconds from 0.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquire::{AcquireMachine, AcquireOutcome, AcquireStep};
use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, OnError, PolicyBook};
use leasehold_core::store::{AcquireResponse, BusyLease, StoreError, StoreErrorKind};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos((1_000_000 + millis) * 1_000_000)
}

// Timeout 2 s, first delay 600 ms.
fn class(on_error: OnError) -> Arc<Class> {
    let mut class = (*PolicyBook::builtin().class("scheduler", Moment::ZERO).unwrap()).clone();
    class.acquire.on_error = on_error;
    class.acquire.timeout = ms(2_000);
    class.acquire.retry = ms(600);
    Arc::new(class)
}

fn machine(on_error: OnError, wait: u64) -> AcquireMachine {
    AcquireMachine::new(class(on_error), ms(wait), false, at(0))
}

fn busy(remaining: u64) -> AcquireResponse {
    AcquireResponse::Busy(BusyLease::default().with_remaining(ms(remaining)))
}

fn unknown() -> StoreError {
    StoreError::unknown(StoreErrorKind::TimedOut, "no answer")
}

// The middle of the random range: the delay without jitter.
const NO_JITTER: u64 = 1 << 63;

#[test]
fn a_waiter_retries_with_jitter_when_the_lease_expires() {
    for (random, late) in [(0, 1), (19, 20), (20, 1), (39, 20)] {
        let mut waits = machine(OnError::FailClosed, 10_000);
        let until = at(200 + late);
        assert_eq!(waits.on_response(busy(100), at(90), at(100), random), AcquireStep::Sleep { until });
    }
}

#[test]
fn a_waiter_retries_after_the_expiry_lag_of_the_store() {
    let mut waits = machine(OnError::FailClosed, 10_000).with_expiry_lag(ms(150));
    let until = at(100 + 100 + 150 + 1);
    assert_eq!(waits.on_response(busy(100), at(90), at(100), 0), AcquireStep::Sleep { until });
}

#[test]
fn a_single_try_retries_once_after_an_unknown_outcome() {
    let mut tries = machine(OnError::FailClosed, 0);
    let until = at(610);
    assert_eq!(tries.on_error(&unknown(), at(0), at(10), NO_JITTER), AcquireStep::Sleep { until });
    assert!(matches!(tries.on_wake(until), AcquireStep::Send { .. }));
    let end = tries.on_error(&unknown(), until, at(620), NO_JITTER);
    assert!(matches!(end, AcquireStep::End(AcquireOutcome::Unavailable { .. })), "{end:?}");
}

#[test]
fn a_single_try_does_not_retry_after_a_definite_failure() {
    let mut tries = machine(OnError::FailClosed, 0);
    let refused = StoreError::not_done(StoreErrorKind::Unreachable, "connection refused");
    let end = tries.on_error(&refused, at(0), at(10), NO_JITTER);
    assert!(matches!(end, AcquireStep::End(AcquireOutcome::Unavailable { .. })), "{end:?}");
}

// The boundary: at its expiry the lease no longer blocks a fallback.
#[test]
fn no_fallback_while_the_last_seen_lease_is_live() {
    for (fails_at, falls_back) in [(5_099, false), (5_100, true)] {
        let mut waits = machine(OnError::FailOpen, 60_000);
        let rests = waits.on_response(busy(5_000), at(90), at(100), NO_JITTER);
        assert!(matches!(rests, AcquireStep::Sleep { .. }));
        let end = waits.on_refused("the breaker is open".to_owned(), at(fails_at));
        assert_eq!(
            matches!(end, AcquireStep::End(AcquireOutcome::FallBack { .. })),
            falls_back,
            "{fails_at}: {end:?}"
        );
    }
}
