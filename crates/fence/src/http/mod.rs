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
//! [`FenceLayer`] lets the request through if the fence is not stale, and answers with a problem document
//! (RFC 9457) otherwise: the contract is in the book's page *Fences over HTTP*. Clients use [`stamp`].
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
//!         // The write itself repeats the check, as one step with the write.
//!         writes.admit_with(&admission.name, admission.fence, || { /* write */ }).map(|verdict| {
//!             verdict.into_result().map_err(|stale| stale.to_string())
//!         }).map_err(|failure| failure.to_string())?
//!     }))
//!     .layer(FenceLayer::new(gate));
//! # let _ = app;
//! ```
//!
//! # What the layer alone does not do
//! It checks, *then* calls the handler. Between the two, a newer holder's request may be admitted and served, and
//! the older one's handler then writes last. The layer turns away what is already stale, cheaply and before any
//! work; it is no protection for a write on its own. The write must carry the fence to where the data lives: take the
//! [`Admission`] from the request's extensions and repeat the check with
//! [`FenceGate::admit_with`](crate::FenceGate::admit_with), inside the handler's
//! [own transaction](crate::sqlite), or in its [Redis script](crate::redis). An equal fence is admitted, so
//! repeating it costs nothing.

mod admission;
mod header;
mod layer;
mod problem;
mod rule;

pub use admission::Admission;
pub use header::{FENCE, Malformed, NAME, read, stamp};
pub use layer::{FenceLayer, FenceService};
