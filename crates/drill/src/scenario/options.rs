//! What can be chosen about the drills.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Sizes. The defaults keep `drill all` short; the bounds are what has been seen to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long the store answers nobody in `store-outage`.
    pub outage: Duration,
    /// How many clients want one name in `contention-storm`.
    pub waiters: u32,
}

impl Options {
    /// The outages that can be asked for: longer than a TTL of the drills, and at most what an operator sits through.
    pub const OUTAGES: RangeInclusive<Duration> = Duration::from_secs(4)..=Duration::from_secs(600);
    /// The storms that can be asked for.
    pub const WAITERS: RangeInclusive<u32> = 10..=1000;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            outage: Duration::from_secs(8),
            waiters: 500,
        }
    }
}
