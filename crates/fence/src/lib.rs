//! Enforcement kits: refuse a stale writer where the data lives.
//!
//! A holder can lose its lease without noticing: the process was paused, the network was slow, the
//! store failed over. No lock client can stop the late holder's last write from arriving. The
//! target of the write can: every grant of a lock carries a [`Fence`] that only grows, and the
//! writer sends it along. The target refuses any fence older than the newest one it has admitted
//! (invariant I3). This crate is the target's side, for four kinds of target:
//!
//! | module | the data lives in | check and write are one step because |
//! |---|---|---|
//! | [`FenceGate`] | this process's memory | the write runs inside [`FenceGate::admit_with`] |
//! | [`sqlite`] | a SQLite database | both are in your own transaction |
//! | [`redis`] | Redis or Valkey | both are in one script |
//! | [`http`] | behind an HTTP service | the handler repeats the check in its own transaction |
//!
//! All of them respond alike. A [`Verdict`] is a response: admitted, or [`StaleFence`]
//! with both numbers. A [`StoreError`](leasehold_core::store::StoreError) is not: it means
//! that the target could not be asked, and says whether the write may have happened. A
//! timeout never becomes a refusal.
//!
//! ```
//! use leasehold_core::{Fence, Name};
//! use leasehold_fence::{FenceGate, Verdict};
//!
//! let gate = FenceGate::new();
//! let job = Name::new("job:42")?;
//! let (old, new) = (Fence::new(7).unwrap(), Fence::new(8).unwrap());
//! let mut log = Vec::new();
//!
//! assert!(gate.admit_with(&job, old, || log.push("first holder"))?.is_admitted());
//! assert!(gate.admit_with(&job, new, || log.push("second holder"))?.is_admitted());
//!
//! // The first holder was paused, lost its lease, and now continues.
//! match gate.admit_with(&job, old, || log.push("too late"))? {
//!     Verdict::Admitted(()) => unreachable!(),
//!     Verdict::Stale(stale) => assert_eq!((stale.offered, stale.newest), (old, new)),
//! }
//! assert_eq!(log, ["first holder", "second holder"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every kit promises: an older fence is refused, an equal one is admitted, a newer one is
//! admitted and remembered. Resources do not affect each other. A race ends as if the
//! writers had come one by one.
//!
//! No kit can promise anything about a write that bypasses it, or about a target that lost
//! its newest fence. A fence compares only with fences of the *same* lock, so one resource
//! must be written under one lock.
//!
//! # Map
//!
//! - `gate`: [`FenceGate`], for data in memory
//! - `sqlite`, `redis`, `http`: one module per kind of target
//! - `marks`: [`Marks`], the trait that middleware uses
//! - `verdict`: [`Verdict`] and [`StaleFence`]
//!
//! Terms: see `docs/glossary.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

mod gate;
mod marks;
mod verdict;

pub use gate::FenceGate;
pub use leasehold_core::Fence;
pub use marks::Marks;
pub use verdict::{StaleFence, Verdict};

/// Runs the Rust snippets in the README and in the book's pages about fencing as tests.
#[cfg(all(doctest, feature = "sqlite", feature = "redis", feature = "http"))]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/fencing.md")]
    struct Fencing;
    #[doc = include_str!("../../../docs/fence-http.md")]
    struct FenceHttp;
}
