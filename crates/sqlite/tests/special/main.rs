//! What is special to the SQLite store; what it has in common with all stores is checked by
//! `tests/conformance.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should stop where it is"
)]

mod boot;
mod cleanup;
mod crash;
mod failure;
mod fence;
mod lanes;
mod names;
mod open;
mod process;
mod rows;
mod scene;
mod secrets;
mod wake;
