//! Must hold within wider bounds: for a release, not for every change.

use super::must_hold::{ALL_PROMISES, PROMISES_AFTER_DATA_LOSS, PROMISES_WITHOUT_WRITES};
use super::{BASE_CONFIG, expect_holds};
use crate::model::config::{DataLoss, ModelConfig, OnFailure};
use crate::model::coverage::CoverageEvent;
use crate::model::promise::ModelPromise::{I1, I2, I3, I4, I5Deadline, I6, L1};

/// Explored completely by `cargo run --release -p leasehold-drill --example model -- wide`.
pub const WIDE_BOUNDS: &[ModelConfig] = &[
    ModelConfig {
        name: "wide_clients_that_come_back",
        about: "two clients that acquire twice each, with a lease of four ticks",
        attempts: 2,
        expect: expect_holds(
            PROMISES_WITHOUT_WRITES,
            &[CoverageEvent::TakeOver, CoverageEvent::TombstoneHit],
            None,
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "wide_three_clients_that_write",
        about: "three clients that write",
        clients: 3,
        writes: 1,
        in_flight: 5,
        fault_ticks: 6,
        expect: expect_holds(ALL_PROMISES, &[CoverageEvent::TakeOver, CoverageEvent::WriteRefused], None),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "wide_late_asks",
        about: "asks repeated by their clients, a lost message and a repeated one",
        requests_per_acquire: 2,
        writes: 1,
        losses: 1,
        repeats: 1,
        expect: expect_holds(
            ALL_PROMISES,
            &[CoverageEvent::TombstoneHit, CoverageEvent::Lost, CoverageEvent::Repeated],
            None,
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "wide_lossy_failover",
        about: "a lagging replica takes over among clients that renew and write",
        renewals: 1,
        writes: 1,
        in_flight: 3,
        data_loss: DataLoss::LaggingReplica,
        expect: expect_holds(
            PROMISES_AFTER_DATA_LOSS,
            &[CoverageEvent::DataLost, CoverageEvent::WriteRefused],
            None,
        ),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "wide_class_that_continues",
        about: "holders that work on past their deadline and renew twice",
        renewals: 2,
        writes: 1,
        fault_ticks: 5,
        in_flight: 3,
        on_failure: OnFailure::Continue,
        expect: expect_holds(
            &[I1, I2, I3, I4, I5Deadline, I6, L1],
            &[CoverageEvent::ProvenAgain, CoverageEvent::NotOwned],
            None,
        ),
        ..BASE_CONFIG
    },
];
