//! Tests of `leasehold-leasehold`, in one binary: each further one is linked anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod demoted;
mod examples;
mod holds;
mod open;
mod own_store;
mod trial_backend;
