//! The real client in a simulated world: promises hold, a seed repeats its history, and known
//! mistakes are found and shrunk.
//!
//! Longer runs: `cargo xtask simulate --seeds 20000`.

// Test code: a panic is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod daemon;
mod faults;
mod machines;
mod mistakes;
mod orphans;
mod promises;
mod queue_entries;
mod replay;
mod seeds;
