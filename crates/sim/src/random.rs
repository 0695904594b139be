//! The only source of randomness of a history, so that the seed alone determines it.

use leasehold_core::rng::{RandomExt, SeededRandom};

/// Seeded random choices.
#[derive(Debug)]
pub(super) struct SimRandom(SeededRandom);

impl SimRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// An independent source for one decision.
    pub(super) fn keyed(seed: u64, key: [u64; 3]) -> Self {
        // Drawing more or less elsewhere must not change this source. Otherwise a shrunk plan would
        // become an unrelated history.
        let mixed = key.iter().fold(seed, |mixed, word| {
            let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        });
        Self::new(mixed)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True with a probability of `per_mille` in a thousand.
    pub(super) fn chance(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A random index into a slice of length `len`.
    pub(super) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A random element of `from`; `otherwise` if it is empty.
    pub(super) fn pick<T: Copy>(&self, from: &[T], otherwise: T) -> T {
        from.get(self.index(from.len())).copied().unwrap_or(otherwise)
    }
}
