//! Clocks that disagree: each machine's own, as a function of the true time that only the simulator knows.

use leasehold_core::clock::Moment;

/// True time in nanoseconds since the history began.
pub(crate) type Nanos = u64;

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SEC: Nanos = 1_000 * MS;
pub(crate) const NEVER: Nanos = u64::MAX;

/// The greatest rate error of a clock, in millionths. Two such clocks diverge by little more than 1
/// %, which the default drift (20 ms and 1 % of the TTL) covers for every TTL used here.
pub(crate) const MAX_DRIFT_PPM: i64 = 4_900;

/// A clock with its own origin and rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriftingClock {
    offset: u64,
    /// Millionths too fast; negative is too slow.
    rate: i64,
}

impl DriftingClock {
    pub(crate) fn new(offset: u64, rate: i64) -> Self {
        Self { offset, rate }
    }

    /// The reading of this clock at a true time.
    pub(crate) fn read(&self, at: Nanos) -> Moment {
        let skew = i128::from(at) * i128::from(self.rate) / 1_000_000;
        let shown = i128::from(self.offset) + i128::from(at) + skew;
        Moment::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first true time at which it shows this moment or a later one.
    pub(crate) fn true_time_of(&self, moment: Moment) -> Nanos {
        if moment == Moment::FAR {
            return NEVER;
        }
        let passed = i128::from(moment.as_nanos()) - i128::from(self.offset);
        let guess = passed.max(0) * 1_000_000 / i128::from(1_000_000 + self.rate);
        let mut at = u64::try_from(guess).unwrap_or(0).saturating_sub(4);
        while self.read(at) < moment {
            at += 1;
        }
        at
    }
}

#[test]
fn true_time_of_is_the_first_instant_with_that_reading() {
    for rate in [-MAX_DRIFT_PPM, -1, 0, 1, MAX_DRIFT_PPM] {
        let clock = DriftingClock::new(3_600 * SEC, rate);
        for at in [1, 999, MS, SEC + 7, 500 * SEC + 123_457] {
            let shown = clock.read(at);
            let back = clock.true_time_of(shown);
            assert!(back <= at && clock.read(back) == shown, "{rate} {at} {back}");
            assert!(clock.read(back - 1) < shown || back == 0, "{rate} {at}");
        }
    }
}
