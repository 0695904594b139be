//! The Redis store against real servers. There is one test per hazard (`rNN_…`) and per trap
//! (`trap_NN_…`) that concerns Redis. Other tests cover what the store promises to people who read
//! its keys with other clients.

// Clippy's exception for tests covers test functions only, not the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acl;
mod cost;
mod data_loss;
mod documents;
mod faults;
mod fences;
mod fixture;
mod foreign;
mod keys;
mod keyspace;
mod proxy;
mod queue;
mod scripts;
mod server_errors;
mod tls;
mod url;
