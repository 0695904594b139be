//! Repeats time-dependent cases on slow machines. An attempt in which the machine was too slow
//! proves nothing, so it is repeated with longer times instead of failing.

use std::time::Duration;

use anyhow::bail;
use leasehold_core::Ttl;
use leasehold_core::clock::{Moment, SharedClock};

use crate::fixture::Fixture;

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Fast enough, and all checks passed.
    Conclusive,
    /// A check failed, but so much time had passed that the store may have been right.
    TooSlow,
}

/// One attempt, with a longer TTL and a new name each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Starts at 0.
    pub(crate) number: u32,
    /// The fixture's short TTL, doubled with every attempt.
    pub(crate) ttl: Ttl,
}

impl Attempt {
    /// A name that no other attempt uses.
    pub(crate) fn name(&self, base: &str) -> String {
        format!("{base}:{}", self.number)
    }
}

/// Repeats `attempt` until it was conclusive.
pub(crate) async fn retry_if_too_slow(
    fixture: &dyn Fixture,
    mut attempt: impl AsyncFnMut(Attempt) -> anyhow::Result<Pace>,
) -> anyhow::Result<()> {
    let mut ttl = fixture.short_ttl();
    // The last attempt has 64 times the short TTL (19 s by default), to absorb a slow machine.
    for number in 0..7 {
        if attempt(Attempt { number, ttl }).await? == Pace::Conclusive {
            return Ok(());
        }
        ttl = Ttl::new(ttl.get() * 2).unwrap_or(ttl);
    }
    bail!(
        "this machine was too slow seven times to tell whether the store is right (last with a TTL of {ttl:?})"
    )
}

/// Measures time on the fixture's clock, started before a request is sent.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    clock: SharedClock,
    started_at: Moment,
}

impl Stopwatch {
    /// Starts the stopwatch now.
    pub(crate) fn start(fixture: &dyn Fixture) -> Self {
        let clock = fixture.clock();
        let from = clock.now();
        Self { clock, started_at: from }
    }

    /// Whether less than `limit` has passed.
    pub(crate) fn is_within(&self, limit: Duration) -> bool {
        self.clock.now().since(self.started_at) < limit
    }
}

/// Ends an attempt if `$holds` is false: as a failure if the attempt was still
/// `$in_time`, as too slow if not.
macro_rules! fair {
    ($in_time:expr, $holds:expr, $($message:tt)+) => {
        if !$holds {
            if $in_time {
                ::anyhow::bail!($($message)+);
            }
            return Ok($crate::pace::Pace::TooSlow);
        }
    };
}
pub(crate) use fair;
