//! `Acquiring` under arbitrary answers: it ends in time, waits no longer than it may, grows its delays, and never
//! forgets that an ask of it may have been granted.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquire::{Acquiring, End, Next, POLL};
use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, Enforcement, OnError};
use leasehold_core::store::{Answer, Busy, Cause, Failure, Grant};
use leasehold_core::word::Fence;
use proptest::prelude::*;

use crate::dice::Dice;
use crate::plan::tailored;

/// What the store says to one ask.
#[derive(Debug, Clone, Copy)]
enum Said {
    Granted,
    Busy(Option<u64>),
    Void,
    Unknown,
    NotDone,
    Denied,
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        1 => Just(Said::Granted),
        6 => proptest::option::of(0_u64..5_000).prop_map(Said::Busy),
        1 => Just(Said::Void),
        4 => Just(Said::Unknown),
        3 => Just(Said::NotDone),
        1 => Just(Said::Denied),
    ]
}

/// What was seen of one acquire.
#[derive(Debug, Default)]
struct Seen {
    unknown: bool,
    erred: bool,
    busy: bool,
    queued: bool,
    /// The pauses after a busy answer without a remaining time.
    pauses: Vec<Duration>,
}

/// Drives one acquire to its end with these answers and how long each takes, in thousandths of its budget.
fn drive(
    class: &Arc<Class>,
    can_queue: bool,
    answers: &[(Said, u64, u64)],
) -> Result<(End, Seen, Acquiring, Moment), TestCaseError> {
    let started = Moment::from_nanos(1_000_000_000_000);
    let wait = class.acquire.wait;
    let (wait_until, timeout) = (started + wait, class.acquire.timeout);
    let mut acquiring = Acquiring::new(Arc::clone(class), wait, can_queue, started);
    let (mut now, mut seen) = (started, Seen::default());
    let mut failing_since = None;
    let mut next = acquiring.ask(now);
    let mut answers = answers.iter().cycle();
    for _ in 0..100_000 {
        next = match next {
            Next::Ask { within, queue } => {
                prop_assert!(within <= timeout);
                prop_assert_eq!(queue.is_some(), can_queue && now < wait_until);
                prop_assert!(
                    !seen.busy || now + within <= wait_until,
                    "an ask that outlasts the wait"
                );
                seen.queued |= queue.is_some();
                let (said, takes, random) = answers.next().copied().unwrap_or((Said::Unknown, 1_000, 0));
                let sent_at = now;
                now = now + within.mul_f64(takes as f64 / 1_000.0).min(within);
                match said {
                    Said::Granted => {
                        let fence = Fence::MIN;
                        acquiring.answered(Answer::Granted(Grant { fence, ttl: None }), sent_at, now, random)
                    }
                    Said::Busy(left) => {
                        failing_since = None;
                        seen.busy = true;
                        let remaining = left.map(Duration::from_millis);
                        let busy = Busy {
                            remaining,
                            // As a store does that takes waiters: a hint may come, and may be lost.
                            queued: queue.is_some(),
                            ..Busy::default()
                        };
                        let next = acquiring.answered(Answer::Busy(busy), sent_at, now, random);
                        if let Next::Rest { until } = &next {
                            prop_assert!(*until <= wait_until, "waits past its end");
                            let most =
                                remaining.map_or(Duration::MAX, |left| left + Duration::from_millis(20));
                            prop_assert!(until.since(now) <= most, "sleeps past the lease's end");
                            prop_assert!(until.since(now) <= POLL, "a lost hint costs more than a poll");
                            if remaining.is_none() {
                                seen.pauses.push(until.since(now));
                            }
                        }
                        next
                    }
                    Said::Void => {
                        seen.erred = true;
                        acquiring.answered(Answer::Void, sent_at, now, random)
                    }
                    Said::Unknown | Said::NotDone | Said::Denied => {
                        seen.erred = true;
                        let since = *failing_since.get_or_insert(sent_at);
                        let failure = match said {
                            Said::Unknown => Failure::unknown(Cause::TimedOut, "none"),
                            Said::NotDone => Failure::not_done(Cause::Unreachable, "none"),
                            _ => Failure::not_done(Cause::Denied, "none"),
                        };
                        seen.unknown |= failure.unknown;
                        let next = acquiring.failed(&failure, sent_at, now, random);
                        if let Next::Rest { until } = &next {
                            prop_assert!(failure.transient(), "what will not mend is not tried again");
                            prop_assert!(*until <= since + timeout, "rests past its budget");
                            prop_assert!(!seen.busy || *until <= wait_until, "rests past its wait");
                        }
                        next
                    }
                }
            }
            Next::Rest { until } => {
                prop_assert!(
                    until > now || seen.busy && until == wait_until,
                    "a rest of no time spins"
                );
                now = now.max(until);
                acquiring.rested(now)
            }
            Next::End(end) => return Ok((end, seen, acquiring, now)),
        };
    }
    Err(TestCaseError::fail("it never ends"))
}

proptest! {
    #![proptest_config(crate::property::config(2_000))]

    #[test]
    fn an_acquire_ends_in_time_and_knows_what_it_owes(
        seed in any::<u64>(),
        can_queue in any::<bool>(),
        retry in prop_oneof![Just(5), 1_u64..5_000],
        answers in proptest::collection::vec((said(), 0_u64..=1_000, any::<u64>()), 1..40),
    ) {
        let mut class = tailored(&Dice::new(seed));
        class.acquire.retry = Duration::from_millis(retry);
        let class = Arc::new(class);
        let (end, seen, acquiring, now) = drive(&class, can_queue, &answers)?;
        let most = class.acquire.wait.max(class.acquire.timeout);
        prop_assert!(now <= acquiring.started() + most, "took {:?} of {most:?}", now.since(acquiring.started()));

        let open = class.acquire.on_error == OnError::FailOpen || class.mode == Enforcement::Shadow;
        match &end {
            End::Held { sent_at, .. } => prop_assert!(*sent_at <= now && *sent_at + class.usable() > now),
            End::Busy(_) => prop_assert!(seen.busy, "busy although nobody said so"),
            End::Unavailable { .. } => prop_assert!(seen.erred && !open),
            End::FallBack { .. } => prop_assert!(seen.erred && open),
            End::TooLate => prop_assert!(acquiring.owes_undo(), "a grant that nobody gives back"),
        }
        prop_assert!(!seen.unknown || acquiring.ambiguous() && acquiring.owes_undo(), "an unknown ask was forgotten");
        let held = matches!(end, End::Held { .. });
        prop_assert!(held || !seen.queued || acquiring.owes_undo(), "a waiter entry was forgotten");
        let clean = !seen.unknown && !seen.queued && end != End::TooLate;
        prop_assert!(!clean || !acquiring.owes_undo(), "an undo of nothing");
    }

    #[test]
    fn delays_begin_at_retry_grow_by_half_and_are_jittered(randoms in proptest::collection::vec(any::<u64>(), 30)) {
        let mut class = tailored(&Dice::new(1));
        class.acquire.wait = Duration::from_secs(3_600);
        class.acquire.retry = Duration::from_millis(25);
        let class = Arc::new(class);
        let mut answers: Vec<_> = randoms.iter().map(|random| (Said::Busy(None), 0, *random)).collect();
        answers.push((Said::Granted, 0, 0));
        let (_, seen, ..) = drive(&class, false, &answers)?;
        prop_assert_eq!(seen.pauses.len(), 30);
        let mut base = Duration::from_millis(25);
        for (pause, random) in seen.pauses.iter().zip(&randoms) {
            prop_assert!(*pause >= base.mul_f64(0.499) && *pause <= base.mul_f64(1.501), "{pause:?} around {base:?}");
            prop_assert!(*pause <= POLL, "a lost hint costs {pause:?}");
            let share = *random as f64 / u64::MAX as f64;
            let expected = base.mul_f64(0.5 + share);
            prop_assert!(pause.abs_diff(expected) < Duration::from_micros(10), "{pause:?} is not {expected:?}");
            base = (base * 3 / 2).min(POLL * 2 / 3);
        }
    }
}
