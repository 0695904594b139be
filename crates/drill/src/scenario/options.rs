//! Options of the drills.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Sizes. The defaults keep `drill all` short; values within the ranges have been tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrillOptions {
    /// Duration of the outage in `store-outage`.
    pub outage: Duration,
    /// Number of clients that compete for one name in `contention-storm`.
    pub waiters: u32,
}

impl DrillOptions {
    /// Allowed outages: longer than the drills' TTL, and at most what an operator waits for.
    pub const OUTAGE_RANGE: RangeInclusive<Duration> = Duration::from_secs(4)..=Duration::from_secs(600);
    /// Allowed numbers of clients.
    pub const WAITER_RANGE: RangeInclusive<u32> = 10..=1000;
}

impl Default for DrillOptions {
    fn default() -> Self {
        Self { outage: Duration::from_secs(8), waiters: 500 }
    }
}
