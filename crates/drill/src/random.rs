//! The seeded random source of drills and of the fault proxy.
//!
//! The one in `leasehold-core` is behind its feature `testing`, which also brings the fault-injecting
//! store. The product must not contain that, so drills have this source. Both draw the same numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::rng::{Random, SharedRandom};

const SPLIT_MIX_INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64: the same seed gives the same numbers.
#[derive(Debug)]
pub(crate) struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    pub(crate) fn shared(seed: u64) -> SharedRandom {
        Arc::new(Self::new(seed))
    }
}

impl Random for SeededRandom {
    fn bits(&self) -> u64 {
        // Adding the increment atomically gives every caller its own state without a lock.
        let state = self.state.fetch_add(SPLIT_MIX_INCREMENT, Ordering::Relaxed);
        let z = state.wrapping_add(SPLIT_MIX_INCREMENT);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ledger names faults by their seeds, so a seed must keep its meaning.
    #[test]
    fn a_seed_draws_the_numbers_of_core() {
        for seed in [0, 1, 42, u64::MAX] {
            let (ours, core) = (SeededRandom::new(seed), leasehold_core::rng::SeededRandom::new(seed));
            for _ in 0..100 {
                assert_eq!(ours.bits(), core.bits(), "seed {seed}");
            }
        }
    }
}
