//! Tests of `leasehold-trace`, in one binary: each further one is linked anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod otlp;
mod spans;
