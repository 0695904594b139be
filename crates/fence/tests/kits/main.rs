//! Tests of `leasehold-fence`, in one binary: each further one is linked anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "sqlite")]
mod examples;
mod fences;
mod gate;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod http_over_tcp;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_failure;
#[cfg(feature = "redis")]
mod redis_server;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_crash;
