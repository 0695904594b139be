//! The configurations: those that must hold, those that must break, and wider ones for a release.
//!
//! A promise is only worth what its counterexamples are worth: each rule of the protocol has a configuration in
//! [`BREAKS`] in which just that rule is broken, and the checker must find out.

mod breaks;
mod holds;
mod wide;

pub use breaks::BREAKS;
pub use holds::HOLDS;
pub use wide::WIDE;

use super::config::{Config, Expect, Forgets, OnFailure, Rules};
use super::promise::Promise;
use super::sight::Sight;

/// Two clients, one acquire each; a lease of four ticks and clocks that are one tick wrong; no fault but delay.
const BASE: Config = Config {
    name: "",
    about: "",
    clients: 2,
    attempts: 1,
    asks: 1,
    renewals: 0,
    writes: 0,
    ttl: 4,
    clock_error: 1,
    trouble: 6,
    in_flight: 4,
    losses: 0,
    repeats: 0,
    repeats_asks: false,
    forgets: Forgets::Never,
    clock_step: 0,
    on_failure: OnFailure::Fence,
    rules: Rules::SOUND,
    expect: Expect::Breaks(&[]),
};

const fn holds(promises: &'static [Promise], sights: &'static [Sight], transitions: Option<u64>) -> Expect {
    Expect::Holds {
        promises,
        sights,
        transitions,
    }
}

/// The configuration of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Config> {
    HOLDS
        .iter()
        .chain(BREAKS)
        .chain(WIDE)
        .find(|config| config.name == name)
}
