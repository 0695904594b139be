//! The conformance cases of every store, run through a daemon: the HTTP API must not change their
//! results.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod memory;
mod redis;
mod served;
mod sqlite;
