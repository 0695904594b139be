//! Every choice of a history comes from here, so the seed is the history.

use leasehold_core::rng::{RandomExt, SeededRandom};

/// A seeded source of choices.
#[derive(Debug)]
pub(super) struct Dice(SeededRandom);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// A source for one thing of a history. What another thing draws does not change it, so that a plan can be
    /// shrunk without every later choice falling otherwise.
    pub(super) fn keyed(seed: u64, key: [u64; 3]) -> Self {
        let mixed = key.iter().fold(seed, |mixed, word| {
            let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        });
        Self::new(mixed)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// From `low` to `high`.
    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True so many times in a thousand.
    pub(super) fn chance(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// An index into something of this length.
    pub(super) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&self, from: &[T], otherwise: T) -> T {
        from.get(self.index(from.len())).copied().unwrap_or(otherwise)
    }
}
