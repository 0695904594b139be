//! Must hold: in every reachable state, every promise named.

use super::{BASE, holds};
use crate::model::config::{Config, Forgets, OnFailure};
use crate::model::promise::Promise::{self, I1, I2, I3, I4, I5Deadline, I5Work, I6, L1};
use crate::model::sight::Sight;

/// With a store that keeps its word.
pub(super) const ALL: &[Promise] = &[I1, I2, I3, I4, I5Deadline, I5Work, I6, L1];
/// The same where nobody writes: nothing is said about writes.
pub(super) const UNWRITTEN: &[Promise] = &[I1, I2, I4, I5Deadline, I6, L1];
/// What is left, and must be, when the store forgets: a lease can be granted twice, and an undo forgotten.
pub(super) const FORGETFUL: &[Promise] = &[I2, I3, I4, L1];

/// Explored whole in every CI run.
pub const HOLDS: &[Config] = &[
    Config {
        name: "holds_while_renewing_and_writing",
        about: "two clients that renew and write",
        renewals: 1,
        writes: 1,
        expect: holds(
            ALL,
            &[
                Sight::TakeOver,
                Sight::Expiry,
                Sight::Renewed,
                Sight::TooLate,
                Sight::WriteApplied,
                Sight::WriteRefused,
            ],
            Some(2_170_080),
        ),
        ..BASE
    },
    Config {
        name: "holds_for_three_clients",
        about: "three clients",
        clients: 3,
        trouble: 5,
        expect: holds(
            UNWRITTEN,
            &[Sight::TakeOver, Sight::Expiry, Sight::TooLate],
            Some(4_165_542),
        ),
        ..BASE
    },
    Config {
        name: "holds_for_clients_that_come_back",
        about: "two clients that acquire twice each, messages of the first time still on their way",
        attempts: 2,
        ttl: 3,
        trouble: 3,
        in_flight: 3,
        expect: holds(
            UNWRITTEN,
            &[Sight::TakeOver, Sight::Expiry, Sight::Voided],
            Some(4_465_040),
        ),
        ..BASE
    },
    Config {
        name: "holds_when_asks_are_late",
        about: "acquires asked again with the same token, given up and undone while their asks are on their way",
        asks: 2,
        trouble: 5,
        in_flight: 3,
        expect: holds(
            UNWRITTEN,
            &[Sight::TakeOver, Sight::Voided, Sight::AskedAgain, Sight::TooLate],
            Some(3_207_635),
        ),
        ..BASE
    },
    Config {
        name: "holds_when_messages_are_lost_and_repeated",
        about: "a lost message and a repeated renewal, release, undo or write",
        renewals: 1,
        writes: 1,
        trouble: 4,
        in_flight: 3,
        losses: 1,
        repeats: 1,
        expect: holds(
            ALL,
            &[Sight::Lost, Sight::Repeated, Sight::TakeOver, Sight::WriteRefused],
            Some(7_312_246),
        ),
        ..BASE
    },
    Config {
        name: "holds_all_but_i6_when_asks_are_repeated",
        about: "a network that repeats asks, which ADR 0007 does not guard against: only I6 is given up",
        trouble: 5,
        repeats: 1,
        repeats_asks: true,
        expect: holds(
            &[I1, I2, I4, I5Deadline, L1],
            &[Sight::Repeated, Sight::TakeOver, Sight::AskedAgain],
            Some(893_566),
        ),
        ..BASE
    },
    Config {
        name: "holds_fences_over_a_flush",
        about: "the store loses lease, tombstones and counter",
        renewals: 1,
        writes: 1,
        trouble: 5,
        in_flight: 3,
        forgets: Forgets::Flush,
        expect: holds(
            FORGETFUL,
            &[Sight::Forgot, Sight::NotOwned, Sight::WriteRefused],
            Some(5_141_140),
        ),
        ..BASE
    },
    Config {
        name: "holds_fences_over_a_lossy_failover",
        about: "a replica that lags behind by any number of writes takes over",
        renewals: 1,
        writes: 1,
        trouble: 4,
        in_flight: 3,
        forgets: Forgets::LaggingReplica,
        expect: holds(
            FORGETFUL,
            &[Sight::Forgot, Sight::TakeOver, Sight::WriteRefused],
            Some(8_768_187),
        ),
        ..BASE
    },
    Config {
        name: "holds_fences_when_the_stores_clock_steps_ahead",
        about: "the store's clock is set ahead by three ticks: leases end early",
        writes: 1,
        clock_step: 3,
        trouble: 5,
        expect: holds(
            &[I2, I3, I4, I5Work, I6, L1],
            &[Sight::Stepped, Sight::TakeOver, Sight::WriteRefused],
            Some(833_951),
        ),
        ..BASE
    },
    Config {
        name: "holds_all_but_i6_when_the_stores_clock_steps_back",
        about: "the store's clock is set back by three ticks and it forgets nothing, so that a lease that had run out may live again",
        writes: 1,
        clock_step: -3,
        trouble: 5,
        expect: holds(
            &[I1, I2, I3, I4, I5Deadline, I5Work, L1],
            &[Sight::Stepped, Sight::TakeOver, Sight::WriteRefused],
            Some(753_824),
        ),
        ..BASE
    },
    Config {
        name: "holds_for_a_class_that_continues",
        about: "holders that work on past their deadline, unproven, and may be proven again",
        renewals: 1,
        writes: 1,
        trouble: 5,
        in_flight: 3,
        on_failure: OnFailure::Continue,
        expect: holds(
            &[I1, I2, I3, I4, I5Deadline, I6, L1],
            &[
                Sight::ProvenAgain,
                Sight::NotOwned,
                Sight::TakeOver,
                Sight::WriteRefused,
            ],
            Some(10_514_936),
        ),
        ..BASE
    },
    Config {
        name: "holds_for_worse_clocks",
        about: "clocks that are two ticks wrong, and a lease long enough for them",
        ttl: 6,
        clock_error: 2,
        trouble: 7,
        expect: holds(
            UNWRITTEN,
            &[Sight::TakeOver, Sight::Expiry, Sight::TooLate],
            Some(1_944_754),
        ),
        ..BASE
    },
];
