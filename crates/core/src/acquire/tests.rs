//! Rules of an acquire that hold to the instant; what holds through every history of answers is a property test
//! (`tests/sim/property/acquire.rs`). Time is plain milliseconds; it begins at 0.

use std::sync::Arc;
use std::time::Duration;

use super::{Acquiring, End, Next};
use crate::clock::Moment;
use crate::policy::{Class, OnError, PolicyBook};
use crate::store::{Answer, Busy, Cause, Failure};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos((1_000_000 + millis) * 1_000_000)
}

/// Asks for 2 s, rests for 600 ms at first.
fn class(on_error: OnError) -> Arc<Class> {
    let mut class = (*PolicyBook::builtin().class("scheduler", Moment::ZERO).unwrap()).clone();
    class.acquire.on_error = on_error;
    class.acquire.timeout = ms(2_000);
    class.acquire.retry = ms(600);
    Arc::new(class)
}

fn acquiring(on_error: OnError, wait: u64) -> Acquiring {
    Acquiring::new(class(on_error), ms(wait), false, at(0))
}

fn busy(remaining: u64) -> Answer {
    Answer::Busy(Busy {
        remaining: Some(ms(remaining)),
        ..Busy::default()
    })
}

fn unknown() -> Failure {
    Failure::unknown(Cause::TimedOut, "no answer")
}

/// Half of the random bits: a rest of its plain length.
const MIDDLE: u64 = 1 << 63;

#[test]
fn a_waiter_comes_when_the_lease_is_over_and_not_in_step_with_others() {
    for (random, late) in [(0, 1), (19, 20), (20, 1), (39, 20)] {
        let mut waits = acquiring(OnError::FailClosed, 10_000);
        let until = at(200 + late);
        assert_eq!(
            waits.answered(busy(100), at(90), at(100), random),
            Next::Rest { until }
        );
    }
}

#[test]
fn one_try_asks_again_once_to_learn_what_became_of_it() {
    let mut tries = acquiring(OnError::FailClosed, 0);
    let until = at(610);
    assert_eq!(
        tries.failed(&unknown(), at(0), at(10), MIDDLE),
        Next::Rest { until }
    );
    assert!(matches!(tries.rested(until), Next::Ask { .. }));
    let end = tries.failed(&unknown(), until, at(620), MIDDLE);
    assert!(matches!(end, Next::End(End::Unavailable { .. })), "{end:?}");
}

#[test]
fn one_try_that_was_not_done_is_not_tried_again() {
    let mut tries = acquiring(OnError::FailClosed, 0);
    let refused = Failure::not_done(Cause::Unreachable, "connection refused");
    let end = tries.failed(&refused, at(0), at(10), MIDDLE);
    assert!(matches!(end, Next::End(End::Unavailable { .. })), "{end:?}");
}

/// To the instant: a lease that is over may be taken for over.
#[test]
fn nobody_falls_back_beside_a_lease_that_was_seen() {
    for (fails_at, falls_back) in [(5_099, false), (5_100, true)] {
        let mut waits = acquiring(OnError::FailOpen, 60_000);
        let rests = waits.answered(busy(5_000), at(90), at(100), MIDDLE);
        assert!(matches!(rests, Next::Rest { .. }));
        let end = waits.refused("the breaker is open".to_owned(), at(fails_at));
        assert_eq!(
            matches!(end, Next::End(End::FallBack { .. })),
            falls_back,
            "{fails_at}: {end:?}"
        );
    }
}
