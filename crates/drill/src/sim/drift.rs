//! Clocks that disagree: each machine's own, as a function of the true time that only the simulator knows.

use leasehold_core::clock::Moment;

/// True time in nanoseconds since the history began.
pub(super) type Nanos = u64;
/// One millisecond.
pub(super) const MS: Nanos = 1_000_000;
/// One second.
pub(super) const SEC: Nanos = 1_000 * MS;
/// Never.
pub(super) const NEVER: Nanos = u64::MAX;

/// How far a clock's rate may be from the truth, in millionths. Two such clocks part by at most 1 % and a little, which
/// the default drift (20 ms and 1 % of the TTL) covers for every TTL used here.
pub(super) const MOST_DRIFT: u64 = 4_900;

/// A clock with an origin and a rate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) offset: u64,
    /// Millionths too fast; negative is too slow.
    pub(super) rate: i64,
}

impl Drift {
    /// What it shows at this true time.
    pub(super) fn read(self, at: Nanos) -> Moment {
        let skew = i128::from(at) * i128::from(self.rate) / 1_000_000;
        let shown = i128::from(self.offset) + i128::from(at) + skew;
        Moment::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// The first true time at which it shows this moment or a later one.
    pub(super) fn when(self, moment: Moment) -> Nanos {
        if moment == Moment::FAR {
            return NEVER;
        }
        let passed = i128::from(moment.as_nanos()) - i128::from(self.offset);
        let guess = passed.max(0) * 1_000_000 / i128::from(1_000_000 + self.rate);
        let Ok(guess) = u64::try_from(guess) else {
            return NEVER;
        };
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
    fn the_inverse_is_the_first_instant() {
        for rate in [-4_900, -1, 0, 1, 4_900] {
            let offset = 3_600 * SEC;
            let clock = Drift { offset, rate };
            for at in [1, 999, MS, SEC + 7, 500 * SEC + 123_457] {
                let shown = clock.read(at);
                let back = clock.when(shown);
                assert!(back <= at && clock.read(back) == shown, "{rate} {at} {back}");
                assert!(clock.read(back - 1) < shown || back == 0, "{rate} {at}");
            }
        }
    }
}
