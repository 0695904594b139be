//! Fair judgement on a slow machine: a case that depends on time is repeated when the machine was too slow
//! for its result to mean anything, and fails only when it does.

use std::time::Duration;

use anyhow::bail;
use leasehold_core::Ttl;
use leasehold_core::clock::{Moment, SharedClock};

use crate::fixture::Fixture;

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It was quick enough, and all was well.
    Fair,
    /// Something was amiss, but so much time had passed that it may have been right.
    TooSlow,
}

/// One attempt: more time and a new name each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Counts from 0.
    pub(crate) number: u32,
    /// The fixture's brief time to live, doubled with every attempt.
    pub(crate) ttl: Ttl,
}

impl Attempt {
    /// A name that no other attempt uses.
    pub(crate) fn name(&self, base: &str) -> String {
        format!("{base}:{}", self.number)
    }
}

/// Repeats `attempt` until it was fair.
pub(crate) async fn fairly(
    fixture: &dyn Fixture,
    mut attempt: impl AsyncFnMut(Attempt) -> anyhow::Result<Pace>,
) -> anyhow::Result<()> {
    let mut ttl = fixture.brief();
    for number in 0..7 {
        if attempt(Attempt { number, ttl }).await? == Pace::Fair {
            return Ok(());
        }
        ttl = Ttl::new(ttl.get() * 2).unwrap_or(ttl);
    }
    bail!(
        "this machine was too slow seven times to tell whether the store is right (last with a TTL of {ttl:?})"
    )
}

/// Measures on the fixture's clock since before a request.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    clock: SharedClock,
    from: Moment,
}

impl Stopwatch {
    /// Started now.
    pub(crate) fn start(fixture: &dyn Fixture) -> Self {
        let clock = fixture.clock();
        let from = clock.now();
        Self { clock, from }
    }

    /// No more than `limit` has passed by now.
    pub(crate) fn within(&self, limit: Duration) -> bool {
        self.clock.now().since(self.from) < limit
    }
}

/// Ends an attempt if `$holds` is false: as a failure if the attempt was still `$in_time`, as too slow if not.
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
