//! A toxic in force on one direction of one connection, with the random source that decides whether
//! it applies.

use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::rng::{Random, SeededRandom};

use super::registry::InstalledToxic;

/// A toxic and its state on this connection.
#[derive(Debug)]
pub(super) struct ActiveToxic {
    pub(super) entry: Arc<InstalledToxic>,
    /// When it took effect on this connection.
    pub(super) since: Moment,
    /// Bytes that had been sent by then: byte limits count from here.
    pub(super) sent_before: u64,
    /// Used by this toxic on this connection only, so draws of other toxics do not change its
    /// sequence.
    random: SeededRandom,
    /// Whether the toxic applies to this connection; drawn when it took effect.
    pub(super) applies: bool,
    /// Whether its effect has been recorded: a continuous toxic counts once per connection.
    pub(super) effect_recorded: bool,
}

impl ActiveToxic {
    /// Creates it with the connection's `seed`. Draws now whether the toxic applies, unless each
    /// command draws on its own.
    pub(super) fn new(entry: &Arc<InstalledToxic>, seed: u64, now: Moment, sent: u64) -> Self {
        let mut active = Self {
            entry: Arc::clone(entry),
            since: now,
            sent_before: sent,
            // Odd numbers here, even ones for the stream machines: no two random sources share a
            // seed.
            random: SeededRandom::new(derive_seed(seed, (entry.serial << 1) | 1)),
            applies: true,
            effect_recorded: false,
        };
        active.applies = entry.toxic.kind.per_command() || active.draw();
        active
    }

    /// Draws whether the toxic applies this time.
    pub(super) fn draw(&self) -> bool {
        // A float holds 53 bits exactly, so the draw is in [0, 1): toxicity 0 never applies and 1
        // always does.
        let drawn = (self.random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < self.entry.toxic.toxicity
    }
}

/// Derives an independent seed for one part of a run.
pub(super) fn derive_seed(seed: u64, part: u64) -> u64 {
    SeededRandom::new(seed ^ part.wrapping_mul(0xd605_1f4d_3a6b_9d3b)).bits()
}
