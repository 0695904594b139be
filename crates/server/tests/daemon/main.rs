//! Tests of the daemon over real connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
mod bounds;
mod canary;
mod disconnects;
mod documents;
mod events;
mod fixture;
mod flood;
mod foreign;
mod holds;
mod hostile;
mod identities;
mod lists;
mod locks;
mod matrix;
mod mounts;
mod openapi;
mod plane;
mod plane_rights;
mod plane_scopes;
mod plane_security;
mod policies;
mod responses;
mod restart;
mod rights;
mod tls;
