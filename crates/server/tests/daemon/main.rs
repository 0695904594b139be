//! Tests of the daemon over real connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod canary;
mod disconnects;
mod events;
mod fixture;
mod flood;
mod holds;
mod hostile;
mod locks;
mod matrix;
mod mounts;
mod openapi;
mod plane;
mod plane_roles;
mod policies;
mod restart;
mod tls;
