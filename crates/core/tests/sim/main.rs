//! The real machines in a simulated world: `Acquiring`, `Life`, `Breaker` and the reference `Table`, with drifting
//! clocks, lost, late and repeated messages, pauses, crashes, outages, a store that forgets, and changing policies.
//!
//! The seed is the history. Faults come first, then a healing phase after which everything must be as if nothing had
//! been. Invariants (I1 to I9, L5) are judged in true time by an oracle that knows nothing of the machines (`court`).
//! `mistake` puts known mistakes back, and each must be caught.
//!
//! `LEASEHOLD_SIM_RUNS` sets the number of histories, `LEASEHOLD_SIM_FROM` the first seed, so that runs add up;
//! `LEASEHOLD_SIM_SEED` repeats one. Build with `--release` for long runs: it is ten times as fast.

// Test code: a panic is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acquiring;
mod client;
mod clock;
mod court;
mod dice;
mod engine;
mod faults;
mod history;
mod invariant;
mod keeping;
mod mistake;
mod network;
mod plan;
mod property;
mod run;
mod working;
mod world;
