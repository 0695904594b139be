//! Tests of `leasehold-metrics`, in one binary: each further one is linked anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod metrics;
mod ops;
