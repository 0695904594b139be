//! A toxic in force on one direction of one connection, and the dice that decide about it.

use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::rng::{Random, SeededRandom};

use super::catalog::Entry;

/// The toxic, and what it has done here.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) entry: Arc<Entry>,
    /// When it took effect here.
    pub(super) since: Moment,
    /// How much had been sent by then.
    pub(super) base: u64,
    /// Belongs to this toxic on this connection, so no other draw shifts it.
    dice: SeededRandom,
    /// Whether the draw for this connection went against it.
    pub(super) hit: bool,
    /// It has been noted that it had an effect.
    pub(super) noted: bool,
}

impl Active {
    /// `seed` is the connection's own. What is not drawn for each command is drawn now.
    pub(super) fn new(entry: &Arc<Entry>, seed: u64, now: Moment, sent: u64) -> Self {
        let mut active = Self {
            entry: Arc::clone(entry),
            since: now,
            base: sent,
            // Odd, while the directions' own dice are even: no two share their numbers.
            dice: SeededRandom::new(branch(seed, (entry.serial << 1) | 1)),
            hit: true,
            noted: false,
        };
        active.hit = entry.toxic.kind.per_command() || active.draw();
        active
    }

    /// Whether the toxic strikes this time.
    pub(super) fn draw(&self) -> bool {
        // 53 bits are what a float holds exactly: 0 never strikes, 1 always does.
        let drawn = (self.dice.bits() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < self.entry.toxic.toxicity
    }
}

/// A seed for one part of what `seed` decides.
pub(super) fn branch(seed: u64, part: u64) -> u64 {
    SeededRandom::new(seed ^ part.wrapping_mul(0xd605_1f4d_3a6b_9d3b)).bits()
}
