//! Clocks that disagree. Each is a function of the true time, which only the simulator knows.

use leasehold_core::clock::Moment;

/// True time in nanoseconds since the history began.
pub type Nanos = u64;
/// Nanoseconds in a millisecond.
pub const MS: Nanos = 1_000_000;
/// Nanoseconds in a second.
pub const SEC: Nanos = 1_000 * MS;
/// A time that never comes.
pub(super) const NEVER: Nanos = u64::MAX;

/// Largest error of a clock's rate, in parts per million.
///
/// Two such clocks diverge by about 1 %. The default drift allowance (20 ms and 1 % of the TTL)
/// covers that for every TTL used here.
pub(super) const MAX_DRIFT_PPM: u64 = 4_900;

/// A clock with its own origin and rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockDrift {
    pub(super) offset: u64,
    // Positive is too fast, negative too slow.
    pub(super) rate_ppm: i64,
}

impl ClockDrift {
    /// What the clock shows at a true time.
    pub(super) fn read(self, at: Nanos) -> Moment {
        let skew = i128::from(at) * i128::from(self.rate_ppm) / 1_000_000;
        let shown = i128::from(self.offset) + i128::from(at) + skew;
        Moment::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first true time at which the clock shows this moment or a later one.
    pub(super) fn true_time_of(self, moment: Moment) -> Nanos {
        if moment == Moment::FAR {
            return NEVER;
        }
        let passed = i128::from(moment.as_nanos()) - i128::from(self.offset);
        let guess = passed.max(0) * 1_000_000 / i128::from(1_000_000 + self.rate_ppm);
        let Ok(guess) = u64::try_from(guess) else {
            return NEVER;
        };
        // Integer division may overshoot by a few nanoseconds, so the exact answer is searched from below.
        let mut at = guess.saturating_sub(4);
        while self.read(at) < moment {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_time_of_is_the_first_instant_with_that_reading() {
        for rate in [-4_900, -1, 0, 1, 4_900] {
            let offset = 3_600 * SEC;
            let clock = ClockDrift { offset, rate_ppm: rate };
            for at in [1, 999, MS, SEC + 7, 500 * SEC + 123_457] {
                let shown = clock.read(at);
                let back = clock.true_time_of(shown);
                assert!(back <= at && clock.read(back) == shown, "{rate} {at} {back}");
                assert!(clock.read(back - 1) < shown || back == 0, "{rate} {at}");
            }
        }
    }
}
