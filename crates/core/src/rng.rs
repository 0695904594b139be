//! Injected randomness. The only file that may read it from the operating system.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of random numbers.
pub trait Random: Send + Sync + fmt::Debug + 'static {
    /// The next 64 random bits.
    fn bits(&self) -> u64;
}

/// A shared handle to a source of randomness.
pub type SharedRandom = Arc<dyn Random>;

/// Convenience methods for every source.
pub trait RandomExt: Random {
    /// 128 random bits.
    fn wide(&self) -> u128 {
        (u128::from(self.bits()) << 64) | u128::from(self.bits())
    }

    /// A number from 0 up to but not including `bound`; 0 if `bound` is 0.
    fn below(&self, bound: u64) -> u64 {
        // Multiply-shift: for the small bounds used here (jitter, choices) the bias is negligible.
        u64::try_from((u128::from(self.bits()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// A duration from half of `around` to one and a half of it. Every delay uses this: with fixed
    /// intervals, contenders retry in step.
    fn jitter(&self, around: Duration) -> Duration {
        let nanos = u64::try_from(around.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos / 2).saturating_add(Duration::from_nanos(self.below(nanos)))
    }
}

impl<R: Random + ?Sized> RandomExt for R {}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsRandom;

impl OsRandom {
    /// Returns a shared handle to this generator.
    #[must_use]
    pub fn shared() -> SharedRandom {
        Arc::new(Self)
    }
}

impl Random for OsRandom {
    #[allow(clippy::disallowed_methods, clippy::expect_used)]
    fn bits(&self) -> u64 {
        // Without entropy a token would not be unique: two owners could release each other's lease,
        // so stop.
        getrandom::u64().expect("the operating system's random number generator must work")
    }
}

const SPLIT_MIX_INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64: cheap and repeatable, not secret. For jitter and for seeded runs.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(SPLIT_MIX_INCREMENT);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seeded source: the same seed gives the same numbers. For drills, simulations and tests, never for
/// tokens, which must not be predictable.
#[derive(Debug)]
pub struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    /// Returns a source for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Returns a shared handle to a source for this seed.
    #[must_use]
    pub fn shared(seed: u64) -> SharedRandom {
        Arc::new(Self::new(seed))
    }
}

impl Random for SeededRandom {
    fn bits(&self) -> u64 {
        // Adding the increment atomically gives every caller its own state without a lock.
        let mut state = self.state.fetch_add(SPLIT_MIX_INCREMENT, Ordering::Relaxed);
        split_mix(&mut state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers() {
        let (a, b) = (SeededRandom::new(7), SeededRandom::new(7));
        assert!((0..100).all(|_| a.bits() == b.bits()));
        assert_ne!(SeededRandom::new(8).bits(), SeededRandom::new(7).bits());
    }

    // Reference values: the output of the authors' program for this seed.
    #[test]
    fn split_mix_is_the_published_one() {
        let mut state = 1_234_567;
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(published.map(|_| split_mix(&mut state)), published);
        let seeded = SeededRandom::new(1_234_567);
        assert_eq!(published.map(|_| seeded.bits()), published);
    }

    #[test]
    fn jitter_stays_around_and_moves() {
        let random = SeededRandom::new(1);
        let all: Vec<_> = (0..1000).map(|_| random.jitter(Duration::from_millis(100))).collect();
        assert!(all.iter().all(|d| (Duration::from_millis(50)..Duration::from_millis(150)).contains(d)));
        assert!(all.iter().any(|d| *d < Duration::from_millis(70)));
        assert!(all.iter().any(|d| *d > Duration::from_millis(130)));
        assert_eq!(random.jitter(Duration::ZERO), Duration::ZERO);
    }
}
