//! The real client in a simulated world: the promises hold, a history repeats from its seed, and known mistakes are found
//! and shrunk.
//!
//! Longer runs: `leasehold drill simulate --seeds 20000`.

// Test code: a panic is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod daemon;
mod faults;
mod mistakes;
mod promises;
mod replay;
mod seeds;
