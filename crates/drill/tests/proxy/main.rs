//! The fault proxy against real sockets: an echo server, and a real `redis-server`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod commands;
mod control;
mod fixture;
mod framer;
mod lifecycle;
mod store;
mod text;
mod toxics;
