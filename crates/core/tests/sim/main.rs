//! The real code in a simulated world: `AcquireDriver`, `HoldMachine`, `Breaker` and the
//! reference `LeaseTable`. Clocks drift; messages are lost, late and repeated; clients pause and
//! crash; the store fails and loses data; policies change.
//!
//! The seed determines the history. Faults come first, then a healing phase, after which no trace
//! of them may remain. An oracle (`judge`) judges the invariants (I1 to I9, L5) in true time,
//! independent of the machines. `mistake` injects known mistakes, and each must be caught.
//!
//! `LEASEHOLD_SIM_RUNS` sets the number of histories, `LEASEHOLD_SIM_FROM` the first seed, so that
//! runs add up; `LEASEHOLD_SIM_SEED` repeats one. Build with `--release` for long runs: it is ten
//! times as fast.

// Test code: a panic is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acquire_driver;
mod client;
mod clock;
mod driver_port;
mod faults;
mod history;
mod hold_driver;
mod invariant;
mod judge;
mod mistake;
mod network;
mod plan;
mod property;
mod random;
mod run;
mod simulation;
mod store;
mod work;
