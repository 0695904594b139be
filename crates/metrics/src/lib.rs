//! The event stream as Prometheus metrics, for the daemon, for `leasehold run` and for any program that takes locks.
//!
//! [`Prometheus`] reads events like every observer and [encodes](Prometheus::encode) what
//! [`METRICS`](leasehold_core::observe::METRICS) lists: each number moves exactly once per transition, labelled by class,
//! namespace and store, never by the lock's name.
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
mod known;
mod prometheus;

pub use prometheus::{CONTENT_TYPE, Prometheus};
