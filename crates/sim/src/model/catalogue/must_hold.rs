//! Must hold: every named promise, in every reachable state.

use super::{BASE_CONFIG, expect_holds};
use crate::model::config::{DataLoss, ModelConfig, OnFailure};
use crate::model::coverage::CoverageEvent;
use crate::model::promise::ModelPromise::{self, I1, I2, I3, I4, I5Deadline, I5Work, I6, L1};

// All promises of a store that loses nothing.
pub(super) const ALL_PROMISES: &[ModelPromise] = &[I1, I2, I3, I4, I5Deadline, I5Work, I6, L1];
// For configurations without writes, where the promises about writes would hold trivially.
pub(super) const PROMISES_WITHOUT_WRITES: &[ModelPromise] = &[I1, I2, I4, I5Deadline, I6, L1];
// What must still hold when the store loses data. A lease can then be granted twice, and an undo
// can be forgotten.
pub(super) const PROMISES_AFTER_DATA_LOSS: &[ModelPromise] = &[I2, I3, I4, L1];

/// Explored completely in every CI run.
pub const MUST_HOLD: &[ModelConfig] = &[
    ModelConfig {
        name: "holds_while_renewing_and_writing",
        about: "two clients that renew and write",
        renewals: 1,
        writes: 1,
        expect: expect_holds(
            ALL_PROMISES,
            &[
                CoverageEvent::TakeOver,
                CoverageEvent::Expiry,
                CoverageEvent::Renewed,
                CoverageEvent::GrantTooLate,
                CoverageEvent::WriteApplied,
                CoverageEvent::WriteRefused,
            ],
            Some(2_170_080),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_for_three_clients",
        about: "three clients",
        clients: 3,
        fault_ticks: 5,
        expect: expect_holds(
            PROMISES_WITHOUT_WRITES,
            &[CoverageEvent::TakeOver, CoverageEvent::Expiry, CoverageEvent::GrantTooLate],
            Some(4_165_542),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_for_clients_that_come_back",
        about: "two clients that acquire twice each, messages of the first time still on their way",
        attempts: 2,
        ttl: 3,
        fault_ticks: 3,
        in_flight: 3,
        expect: expect_holds(
            PROMISES_WITHOUT_WRITES,
            &[CoverageEvent::TakeOver, CoverageEvent::Expiry, CoverageEvent::TombstoneHit],
            Some(4_465_040),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_when_asks_are_late",
        about: "acquires asked again with the same token, given up and undone while their asks are on their way",
        requests_per_acquire: 2,
        fault_ticks: 5,
        in_flight: 3,
        expect: expect_holds(
            PROMISES_WITHOUT_WRITES,
            &[
                CoverageEvent::TakeOver,
                CoverageEvent::TombstoneHit,
                CoverageEvent::RequestRepeatedByOwner,
                CoverageEvent::GrantTooLate,
            ],
            Some(3_207_635),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_when_messages_are_lost_and_repeated",
        about: "a lost message and a repeated renewal, release, undo or write",
        renewals: 1,
        writes: 1,
        fault_ticks: 4,
        in_flight: 3,
        losses: 1,
        repeats: 1,
        expect: expect_holds(
            ALL_PROMISES,
            &[
                CoverageEvent::Lost,
                CoverageEvent::Repeated,
                CoverageEvent::TakeOver,
                CoverageEvent::WriteRefused,
            ],
            Some(7_312_246),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_all_but_i6_when_asks_are_repeated",
        about: "a network that repeats asks, which ADR 0007 does not guard against: only I6 is given up",
        fault_ticks: 5,
        repeats: 1,
        repeats_acquires: true,
        expect: expect_holds(
            &[I1, I2, I4, I5Deadline, L1],
            &[CoverageEvent::Repeated, CoverageEvent::TakeOver, CoverageEvent::RequestRepeatedByOwner],
            Some(893_566),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_fences_over_a_flush",
        about: "the store loses lease, tombstones and counter",
        renewals: 1,
        writes: 1,
        fault_ticks: 5,
        in_flight: 3,
        data_loss: DataLoss::Flush,
        expect: expect_holds(
            PROMISES_AFTER_DATA_LOSS,
            &[CoverageEvent::DataLost, CoverageEvent::NotOwned, CoverageEvent::WriteRefused],
            Some(5_141_140),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_fences_over_a_lossy_failover",
        about: "a replica that lags behind by any number of writes takes over",
        renewals: 1,
        writes: 1,
        fault_ticks: 4,
        in_flight: 3,
        data_loss: DataLoss::LaggingReplica,
        expect: expect_holds(
            PROMISES_AFTER_DATA_LOSS,
            &[CoverageEvent::DataLost, CoverageEvent::TakeOver, CoverageEvent::WriteRefused],
            Some(8_768_187),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_fences_when_the_stores_clock_steps_ahead",
        about: "the store's clock is set ahead by three ticks: leases end early",
        writes: 1,
        clock_step: 3,
        fault_ticks: 5,
        expect: expect_holds(
            &[I2, I3, I4, I5Work, I6, L1],
            &[CoverageEvent::ClockStepped, CoverageEvent::TakeOver, CoverageEvent::WriteRefused],
            Some(833_951),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_all_but_i6_when_the_stores_clock_steps_back",
        about: "the store's clock is set back by three ticks and it forgets nothing, so that a lease that had run out may live again",
        writes: 1,
        clock_step: -3,
        fault_ticks: 5,
        expect: expect_holds(
            &[I1, I2, I3, I4, I5Deadline, I5Work, L1],
            &[CoverageEvent::ClockStepped, CoverageEvent::TakeOver, CoverageEvent::WriteRefused],
            Some(753_824),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_for_a_class_that_continues",
        about: "holders that work on past their deadline, unproven, and may be proven again",
        renewals: 1,
        writes: 1,
        fault_ticks: 5,
        in_flight: 3,
        on_failure: OnFailure::Continue,
        expect: expect_holds(
            &[I1, I2, I3, I4, I5Deadline, I6, L1],
            &[
                CoverageEvent::ProvenAgain,
                CoverageEvent::NotOwned,
                CoverageEvent::TakeOver,
                CoverageEvent::WriteRefused,
            ],
            Some(10_514_936),
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "holds_for_worse_clocks",
        about: "clocks that are two ticks wrong, and a lease long enough for them",
        ttl: 6,
        clock_error: 2,
        fault_ticks: 7,
        expect: expect_holds(
            PROMISES_WITHOUT_WRITES,
            &[CoverageEvent::TakeOver, CoverageEvent::Expiry, CoverageEvent::GrantTooLate],
            Some(1_944_754),
        ),
        ..BASE_CONFIG
    },
];
