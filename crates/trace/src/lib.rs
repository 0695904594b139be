//! Exports the event stream as OpenTelemetry spans: one span per hold, from the acquire call to the
//! end of the lease. Renewals, losses and releases are events of the span.
//!
//! [`SpanObserver`] is an observer and works with any tracer. With the feature `otlp`, [`Otlp`]
//! sends spans to a collector.
//!
//! | module | contents |
//! |---|---|
//! | `spans` | the observer: open spans by hold |
//! | `span_events` | maps an event to its effect on the span, and to attributes |
//! | `otlp` | an exporter over OTLP/HTTP (feature `otlp`) |
//!
//! Terms: see `docs/glossary.md`.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Locks, clock::BootClock, memory::MemoryStore};
//! use leasehold_trace::SpanObserver;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spans = SpanObserver::new(opentelemetry::global::tracer("my-service"));
//! let store = Arc::new(MemoryStore::new(BootClock::shared()));
//! let locks = Locks::builder(store).observer(Arc::new(spans)).build()?;
//! locks.class("scheduler").run("job:42", async |_| ()).await?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "otlp")]
mod otlp;
mod span_events;
mod spans;

#[cfg(feature = "otlp")]
pub use otlp::{Otlp, OtlpError};
pub use spans::SpanObserver;

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
