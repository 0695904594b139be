//! Every random choice of a history comes from here, so the seed determines the history.

use leasehold_core::rng::{RandomExt, SeededRandom};

use crate::clock::Nanos;

/// A seeded source of choices.
#[derive(Debug)]
pub(crate) struct SimRandom(SeededRandom);

impl SimRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// From 0 up to but not including `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// From `low` to `high`.
    pub(crate) fn between(&self, low: Nanos, high: Nanos) -> Nanos {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with this probability, in thousandths.
    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A random index into a sequence of this length.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}
