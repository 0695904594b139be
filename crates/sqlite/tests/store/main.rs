//! Tests that only apply to the SQLite store. `tests/conformance.rs` covers what all stores share.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should stop where it is"
)]

mod boot;
mod cleanup;
mod crash;
mod documents;
mod examine;
mod failure;
mod fence;
mod fixture;
mod names;
mod open;
mod priority;
mod process;
mod rows;
mod secrets;
mod wake;
