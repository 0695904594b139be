//! The fault proxy against real sockets: an echo server, and a real `redis-server`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

mod commands;
mod control;
mod framer;
mod life;
mod stage;
mod store;
mod toxics;
mod words;
