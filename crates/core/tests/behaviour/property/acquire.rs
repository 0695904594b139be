//! `AcquireMachine` under arbitrary responses: it ends in time, never waits too long, grows its
//! delays, and always remembers that a request may have been granted.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquire::{AcquireMachine, AcquireOutcome, AcquireStep, MAX_POLL_INTERVAL};
use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, Enforcement, OnError};
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{AcquireResponse, BusyLease, Grant, StoreError, StoreErrorKind};
use leasehold_core::types::Fence;
use proptest::prelude::*;

use super::random_class::random_class;

/// The store's response to one request.
#[derive(Debug, Clone, Copy)]
enum ScriptedResponse {
    Granted,
    Busy(Option<u64>),
    Void,
    Unknown,
    NotDone,
    Denied,
}

fn scripted_response() -> impl Strategy<Value = ScriptedResponse> {
    prop_oneof![
        1 => Just(ScriptedResponse::Granted),
        6 => proptest::option::of(0_u64..5_000).prop_map(ScriptedResponse::Busy),
        1 => Just(ScriptedResponse::Void),
        4 => Just(ScriptedResponse::Unknown),
        3 => Just(ScriptedResponse::NotDone),
        1 => Just(ScriptedResponse::Denied),
    ]
}

/// The observations of one acquire.
#[derive(Debug, Default)]
struct AcquireObservation {
    unknown: bool,
    erred: bool,
    busy: bool,
    queued: bool,
    /// The pauses after a busy response without a remaining time.
    pauses: Vec<Duration>,
}

/// Drives one acquire to its end with these responses and their delays, in thousandths of its timeout.
fn drive(
    class: &Arc<Class>,
    can_queue: bool,
    answers: &[(ScriptedResponse, u64, u64)],
) -> Result<(AcquireOutcome, AcquireObservation, AcquireMachine, Moment), TestCaseError> {
    let started = Moment::from_nanos(1_000_000_000_000);
    let wait = class.acquire.wait;
    let (wait_until, timeout) = (started + wait, class.acquire.timeout);
    let mut acquiring = AcquireMachine::new(Arc::clone(class), wait, can_queue, started);
    let (mut now, mut seen) = (started, AcquireObservation::default());
    let mut failing_since = None;
    let mut next = acquiring.next_request(now);
    let mut answers = answers.iter().cycle();
    for _ in 0..100_000 {
        next = match next {
            AcquireStep::Send { within, queue } => {
                prop_assert!(within <= timeout);
                prop_assert_eq!(queue.is_some(), can_queue && now < wait_until);
                prop_assert!(!seen.busy || now + within <= wait_until, "an ask that outlasts the wait");
                seen.queued |= queue.is_some();
                let (message, takes, random) =
                    answers.next().copied().unwrap_or((ScriptedResponse::Unknown, 1_000, 0));
                let sent_at = now;
                now = now + within.mul_f64(takes as f64 / 1_000.0).min(within);
                match message {
                    ScriptedResponse::Granted => {
                        let fence = Fence::MIN;
                        acquiring.on_response(
                            AcquireResponse::Granted(Grant::new(fence)),
                            sent_at,
                            now,
                            random,
                        )
                    }
                    ScriptedResponse::Busy(left) => {
                        failing_since = None;
                        seen.busy = true;
                        let remaining = left.map(Duration::from_millis);
                        // As a store that queues waiters does: a hint may come, and may be lost.
                        let busy =
                            BusyLease::default().with_remaining(remaining).with_queued(queue.is_some());
                        let next = acquiring.on_response(AcquireResponse::Busy(busy), sent_at, now, random);
                        if let AcquireStep::Sleep { until } = &next {
                            prop_assert!(*until <= wait_until, "waits past its end");
                            let most =
                                remaining.map_or(Duration::MAX, |left| left + Duration::from_millis(20));
                            prop_assert!(until.since(now) <= most, "sleeps past the lease's end");
                            prop_assert!(
                                until.since(now) <= MAX_POLL_INTERVAL,
                                "a lost hint costs more than a poll"
                            );
                            if remaining.is_none() {
                                seen.pauses.push(until.since(now));
                            }
                        }
                        next
                    }
                    ScriptedResponse::Void => {
                        seen.erred = true;
                        acquiring.on_response(AcquireResponse::Void, sent_at, now, random)
                    }
                    ScriptedResponse::Unknown | ScriptedResponse::NotDone | ScriptedResponse::Denied => {
                        seen.erred = true;
                        let since = *failing_since.get_or_insert(sent_at);
                        let failure = match message {
                            ScriptedResponse::Unknown => {
                                StoreError::unknown(StoreErrorKind::TimedOut, "none")
                            }
                            ScriptedResponse::NotDone => {
                                StoreError::not_done(StoreErrorKind::Unreachable, "none")
                            }
                            _ => StoreError::not_done(StoreErrorKind::Denied, "none"),
                        };
                        seen.unknown |= failure.unknown;
                        let next = acquiring.on_error(&failure, sent_at, now, random);
                        if let AcquireStep::Sleep { until } = &next {
                            prop_assert!(failure.is_transient(), "what will not mend is not tried again");
                            prop_assert!(*until <= since + timeout, "rests past its budget");
                            prop_assert!(!seen.busy || *until <= wait_until, "rests past its wait");
                        }
                        next
                    }
                }
            }
            AcquireStep::Sleep { until } => {
                prop_assert!(until > now || seen.busy && until == wait_until, "a rest of no time spins");
                now = now.max(until);
                acquiring.on_wake(now)
            }
            AcquireStep::End(end) => return Ok((end, seen, acquiring, now)),
        };
    }
    Err(TestCaseError::fail("it never ends"))
}

proptest! {
    #![proptest_config(crate::property::config(2_000))]

    #[test]
    fn an_acquire_ends_in_time_and_knows_if_it_owes_an_undo(
        seed in any::<u64>(),
        can_queue in any::<bool>(),
        retry in prop_oneof![Just(5), 1_u64..5_000],
        answers in proptest::collection::vec((scripted_response(), 0_u64..=1_000, any::<u64>()), 1..40),
    ) {
        let mut class = random_class(&SeededRandom::new(seed));
        class.acquire.retry = Duration::from_millis(retry);
        let class = Arc::new(class);
        let (end, seen, acquiring, now) = drive(&class, can_queue, &answers)?;
        let most = class.acquire.wait.max(class.acquire.timeout);
        prop_assert!(now <= acquiring.started() + most, "took {:?} of {most:?}", now.since(acquiring.started()));

        let open = class.acquire.on_error == OnError::FailOpen || class.mode == Enforcement::Shadow;
        match &end {
            AcquireOutcome::Held { sent_at, .. } => prop_assert!(*sent_at <= now && *sent_at + class.usable() > now),
            AcquireOutcome::Busy(_) => prop_assert!(seen.busy, "busy although nobody said so"),
            AcquireOutcome::Unavailable { .. } => prop_assert!(seen.erred && !open),
            AcquireOutcome::FallBack { .. } => prop_assert!(seen.erred && open),
            AcquireOutcome::TooLate => prop_assert!(acquiring.needs_undo(), "a grant that nobody gives back"),
        }
        prop_assert!(!seen.unknown || acquiring.maybe_granted() && acquiring.needs_undo(), "an unknown ask was forgotten");
        let held = matches!(end, AcquireOutcome::Held { .. });
        prop_assert!(held || !seen.queued || acquiring.needs_undo(), "a waiter entry was forgotten");
        let clean = !seen.unknown && !seen.queued && end != AcquireOutcome::TooLate;
        prop_assert!(!clean || !acquiring.needs_undo(), "an undo of nothing");
    }

    #[test]
    fn delays_begin_at_retry_grow_by_half_and_are_jittered(randoms in proptest::collection::vec(any::<u64>(), 30)) {
        let mut class = random_class(&SeededRandom::new(1));
        class.acquire.wait = Duration::from_secs(3_600);
        class.acquire.retry = Duration::from_millis(25);
        let class = Arc::new(class);
        let mut answers: Vec<_> = randoms.iter().map(|random| (ScriptedResponse::Busy(None), 0, *random)).collect();
        answers.push((ScriptedResponse::Granted, 0, 0));
        let (_, seen, ..) = drive(&class, false, &answers)?;
        prop_assert_eq!(seen.pauses.len(), 30);
        let mut base = Duration::from_millis(25);
        for (pause, random) in seen.pauses.iter().zip(&randoms) {
            prop_assert!(*pause >= base.mul_f64(0.499) && *pause <= base.mul_f64(1.501), "{pause:?} around {base:?}");
            prop_assert!(*pause <= MAX_POLL_INTERVAL, "a lost hint costs {pause:?}");
            let share = *random as f64 / u64::MAX as f64;
            let expected = base.mul_f64(0.5 + share);
            prop_assert!(pause.abs_diff(expected) < Duration::from_micros(10), "{pause:?} is not {expected:?}");
            base = (base * 3 / 2).min(MAX_POLL_INTERVAL * 2 / 3);
        }
    }
}
