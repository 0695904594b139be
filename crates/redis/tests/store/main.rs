//! The Redis store against real servers: one test per hazard (`rNN_…`) and per trap (`trap_NN_…`) that is about Redis,
//! and what the store promises to people who look at its keys with other clients.

// clippy's leave for tests covers test functions only, not what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acl;
mod cost;
mod faults;
mod fences;
mod foreign;
mod keyspace;
mod loss;
mod queue;
mod scripts;
mod server_errors;
mod stage;
mod tls;
