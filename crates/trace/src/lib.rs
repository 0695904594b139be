//! The event stream as OpenTelemetry spans: one for each hold, from the call of its acquire to the end of its lease, with renewals,
//! losses and releases as events of the span.
//!
//! [`Spans`] is an observer like any other and takes any tracer. With the feature `otlp`, [`Otlp`] has one that sends to a collector.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Locks, clock::BootClock, memory::MemoryStore};
//! use leasehold_trace::Spans;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spans = Spans::new(opentelemetry::global::tracer("my-service"));
//! let store = Arc::new(MemoryStore::new(BootClock::shared()));
//! let locks = Locks::builder(store).observer(Arc::new(spans)).build()?;
//! locks.class("scheduler").run("job:42", async |_| ()).await?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "otlp")]
mod otlp;
mod spans;
mod story;

#[cfg(feature = "otlp")]
pub use otlp::{CannotSend, Otlp};
pub use spans::Spans;
