//! Enforcement kits: refuse a stale writer where the data lives.
//!
//! A lease can be lost without its holder noticing: the process was paused, the network was slow, the store
//! failed over. No lock client can prevent that the late holder's last write still arrives. What can is the target
//! of the write: every grant of a lock carries a [`Fence`] that only grows, the writer sends it along, and the
//! target refuses any fence older than the newest one it has admitted (invariant I3). This crate is that target's
//! side, for four kinds of target:
//!
//! | module | the data lives in | check and write are one step because |
//! |---|---|---|
//! | [`FenceGate`] | this process's memory | the write runs inside [`FenceGate::admit_with`] |
//! | [`sqlite`] | a SQLite database | both are in your own transaction |
//! | [`redis`] | Redis or Valkey | both are in one script |
//! | [`http`] | behind an HTTP service | the handler repeats the check in its own transaction |
//!
//! All of them answer alike. A [`Verdict`] is an answer: admitted, or [`Stale`] with both numbers. A
//! [`Failure`](leasehold_core::store::Failure) is not an answer: it says that the target could not be asked, and
//! whether the write may have happened all the same. A time-out is never turned into a refusal.
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
//! // The first holder was paused, lost its lease, and now goes on where it was.
//! match gate.admit_with(&job, old, || log.push("too late"))? {
//!     Verdict::Admitted(()) => unreachable!(),
//!     Verdict::Stale(stale) => assert_eq!((stale.offered, stale.newest), (old, new)),
//! }
//! assert_eq!(log, ["first holder", "second holder"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What every kit promises: an older fence is refused, an equal one is admitted, a newer one is admitted and
//! remembered; resources do not influence each other; a race is settled as if the writers had come one by one.
//! What none can promise: anything about a write that does not go through it, or about a target that lost its
//! memory of the newest fence. A fence compares only with fences of the *same* lock, so one resource must be
//! written under one lock.

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
pub use verdict::{Stale, Verdict};

/// The book's pages about fencing: their Rust snippets are run as tests.
#[cfg(all(doctest, feature = "sqlite", feature = "redis", feature = "http"))]
mod book {
    #[doc = include_str!("../../../docs/fencing.md")]
    struct Fencing;
    #[doc = include_str!("../../../docs/fence-http.md")]
    struct FenceHttp;
}
