//! Tests of `leasehold-plane`, in one binary: each further one is linked anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod abandoned;
mod approval;
mod commands;
mod conformance;
mod examples;
mod fixture;
mod properties;
mod replayer;
mod scheduler;
mod stopped;
mod workflow;
