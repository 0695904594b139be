//! Exports the event stream as Prometheus metrics, for the daemon, for `leasehold run` and for any
//! program that uses locks.
//!
//! [`Prometheus`] is an observer and [encodes](Prometheus::encode) the metrics in
//! [`METRICS`](leasehold_core::observe::METRICS). Each transition is counted exactly once.
//! Labels are class, namespace and store, never the lock's name.
//!
//! | module | contents |
//! |---|---|
//! | `prometheus` | the observer and its text formats |
//! | `buckets` | the bounds of the histograms |
//! | `zero_series` | the series that exist before their first event |
//!
//! Terms: see `docs/glossary.md`.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Locks, clock::BootClock, memory::MemoryStore};
//! use leasehold_metrics::Prometheus;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let metrics = Arc::new(Prometheus::new("memory"));
//! let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).observer(metrics.clone()).build()?;
//! locks.class("scheduler").run("job:42", async |_| ()).await?;
//! assert!(metrics.encode().contains(
//!     "leasehold_acquire_total{store=\"memory\",class=\"scheduler\",namespace=\"job\",outcome=\"acquired\"} 1"
//! ));
//! # Ok(())
//! # }
//! ```

mod buckets;
mod prometheus;
mod zero_series;

pub use prometheus::{CONTENT_TYPE, Prometheus};

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
