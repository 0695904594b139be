//! Fences over HTTP: two headers, a tower layer for servers, one function for clients.
//!
//! A writer sends the name of its lock and the fence it got:
//!
//! ```text
//! PUT /jobs/42 HTTP/1.1
//! Leasehold-Name: job:42
//! Leasehold-Fence: 1789312345678901
//! ```
//!
//! [`FenceLayer`] lets the request through if the fence is not stale. Otherwise it responds
//! with a problem document (RFC 9457). The contract is in the book's page *Fences over
//! HTTP*. Clients use [`stamp`].
//!
//! ```
//! use axum::{Extension, Router, routing::put};
//! use leasehold_fence::{FenceGate, http::{Admission, FenceLayer}};
//! use std::sync::Arc;
//!
//! let gate = Arc::new(FenceGate::new());
//! let writes = Arc::clone(&gate);
//! let app: Router = Router::new()
//!     .route("/jobs/{id}", put(move |Extension(admission): Extension<Admission>| async move {
//!         // The write repeats the check, atomically with the write.
//!         writes.admit_with(&admission.name, admission.fence, || { /* write */ }).map(|verdict| {
//!             verdict.into_result().map_err(|stale| stale.to_string())
//!         }).map_err(|failure| failure.to_string())?
//!     }))
//!     .layer(FenceLayer::new(gate));
//! # let _ = app;
//! ```
//!
//! # What the layer alone does not do
//! It checks, *then* calls the handler. Between the two, a newer holder's request may be admitted
//! and served, and the older one's handler then writes last. The layer refuses what is already
//! stale, cheaply and before any work. On its own it does not protect a write.
//!
//! The write must carry the fence to where the data lives. Take the [`Admission`] from the
//! request's extensions and repeat the check with
//! [`FenceGate::admit_with`](crate::FenceGate::admit_with), inside the handler's [own
//! transaction](crate::sqlite), or in its [Redis script](crate::redis). An equal fence is admitted,
//! so the second check does no harm.

mod admission;
mod header;
mod layer;
mod problem;
mod rule;

pub use admission::Admission;
pub use header::{FENCE, MalformedHeader, NAME, read, stamp};
pub use layer::{FenceLayer, FenceService};
