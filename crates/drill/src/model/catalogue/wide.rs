//! Must hold, in wider bounds: for a release, not for every change.

use super::holds::{ALL, FORGETFUL, UNWRITTEN};
use super::{BASE, holds};
use crate::model::config::{Config, Forgets, OnFailure};
use crate::model::promise::Promise::{I1, I2, I3, I4, I5Deadline, I6, L1};
use crate::model::sight::Sight;

/// Explored whole by `cargo run --release -p leasehold-drill --example model -- wide`.
pub const WIDE: &[Config] = &[
    Config {
        name: "wide_clients_that_come_back",
        about: "two clients that acquire twice each, with a lease of four ticks",
        attempts: 2,
        expect: holds(UNWRITTEN, &[Sight::TakeOver, Sight::Voided], None),
        ..BASE
    },
    Config {
        name: "wide_three_clients_that_write",
        about: "three clients that write",
        clients: 3,
        writes: 1,
        in_flight: 5,
        trouble: 6,
        expect: holds(ALL, &[Sight::TakeOver, Sight::WriteRefused], None),
        ..BASE
    },
    Config {
        name: "wide_late_asks",
        about: "asks repeated by their clients, a lost message and a repeated one",
        asks: 2,
        writes: 1,
        losses: 1,
        repeats: 1,
        expect: holds(ALL, &[Sight::Voided, Sight::Lost, Sight::Repeated], None),
        ..BASE
    },
    Config {
        name: "wide_lossy_failover",
        about: "a lagging replica takes over among clients that renew and write",
        renewals: 1,
        writes: 1,
        in_flight: 3,
        forgets: Forgets::LaggingReplica,
        expect: holds(FORGETFUL, &[Sight::Forgot, Sight::WriteRefused], None),
        ..BASE
    },
    Config {
        name: "wide_class_that_continues",
        about: "holders that work on past their deadline and renew twice",
        renewals: 2,
        writes: 1,
        trouble: 5,
        in_flight: 3,
        on_failure: OnFailure::Continue,
        expect: holds(
            &[I1, I2, I3, I4, I5Deadline, I6, L1],
            &[Sight::ProvenAgain, Sight::NotOwned],
            None,
        ),
        ..BASE
    },
];
