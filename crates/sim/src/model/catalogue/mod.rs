//! The configurations: those that must hold, those that must break, and wider ones for a release.
//!
//! A proof is only worth as much as its counterexamples. Each rule of the protocol has a configuration
//! in [`MUST_BREAK`] that breaks just this rule, and the checker must find it.

mod must_break;
mod must_hold;
mod wide;

pub use must_break::MUST_BREAK;
pub use must_hold::MUST_HOLD;
pub use wide::WIDE_BOUNDS;

use super::config::{DataLoss, ExpectedResult, ModelConfig, OnFailure, Rules};
use super::coverage::CoverageEvent;
use super::promise::ModelPromise;

// Two clients with one acquire each, a lease of four ticks, clocks wrong by one tick, and no fault
// but delay.
const BASE_CONFIG: ModelConfig = ModelConfig {
    name: "",
    about: "",
    clients: 2,
    attempts: 1,
    requests_per_acquire: 1,
    renewals: 0,
    writes: 0,
    ttl: 4,
    clock_error: 1,
    fault_ticks: 6,
    in_flight: 4,
    losses: 0,
    repeats: 0,
    repeats_acquires: false,
    data_loss: DataLoss::Never,
    clock_step: 0,
    on_failure: OnFailure::Fence,
    rules: Rules::SOUND,
    expect: ExpectedResult::AllBreak(&[]),
};

const fn expect_holds(
    promises: &'static [ModelPromise],
    sights: &'static [CoverageEvent],
    transitions: Option<u64>,
) -> ExpectedResult {
    ExpectedResult::AllHold { promises, sights, transitions }
}

/// The configuration with this name.
#[must_use]
pub fn find_config(name: &str) -> Option<&'static ModelConfig> {
    MUST_HOLD.iter().chain(MUST_BREAK).chain(WIDE_BOUNDS).find(|config| config.name == name)
}
