//! Tests of `leasehold-plane`, in one binary: each further one is linked anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod abandoned;
mod approval;
mod claims;
mod command_input;
mod commands;
mod conformance;
mod ended_quota;
mod examples;
mod fixture;
mod key_scopes;
mod properties;
mod redis_keys;
mod replayer;
mod scheduler;
mod step_ids;
mod stopped;
mod visible_names;
mod workflow;
mod workflow_bounds;
