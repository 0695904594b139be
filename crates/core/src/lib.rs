//! Leases with an explicit failure policy. Each workload risk class states, as data, what happens
//! when an acquire fails, when a renewal fails and when a release fails.
//!
//! The modules, in the order in which a lock uses them:
//!
//! - [`request`]: the caller's acquire request and its options.
//! - `gate`: the process-local queue, one contender per process and name.
//! - `breaker`: the circuit breaker in front of the store.
//! - [`acquire`]: the pure acquire machine and the async driver that runs it.
//! - [`deadline`]: the rules that compute and compare the end of a lease or a hold.
//! - `life`: one hold as a pure state machine; the private `keeper` task drives these machines.
//! - [`hold`]: the guard that a successful acquire returns.
//! - [`policy`]: the classes in force and how they change.
//! - [`store`]: the trait that every storage engine implements; [`memory`] is the reference engine;
//!   [`adapter`] wraps another store.
//! - [`testbed`]: what a store's crate offers to drills, to the conformance suite and to the simulator.
//! - [`event`]: the event stream; [`observe`] turns it into logs, counters and history.
//! - [`types`]: names, tokens, fences and other validated values; [`clock`] and [`rng`]: injected
//!   time and randomness.
//!
//! Terms: see `docs/glossary.md`.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Acquired, Locks, clock::BootClock, memory::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build()?;
//!
//! // The short way: acquire, hold, renew, fence, release.
//! let fence = locks.class("scheduler").run("job:42", async |hold| hold.fence()).await??;
//!
//! // The long way.
//! match locks.class("approval").acquire("job:42").await? {
//!     Acquired::Held(hold) => {
//!         hold.check()?;
//!         assert!(hold.fence()? > fence);
//!         hold.release().await;
//!     }
//!     Acquired::Busy(busy) => println!("{busy}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Promised**: at most one distributed hold of a name is within its deadline (I1); fences of a
//! name only grow (I2); no work of a `fence` class runs past its deadline (I5).
//!
//! **Not promised**: that a store which forgets (a flush, a fail-over that loses writes, a clock
//! that jumps) keeps two holders apart. A lock that protects correctness needs its [`Fence`]
//! checked where the data lives.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod acquire;
pub mod adapter;
mod admin;
pub mod atomic_file;
pub mod bounded_read;
// `breaker`, `gate` and `life` are public for the tests of this crate only: they may change in any release.
#[doc(hidden)]
pub mod breaker;
mod client;
pub mod clock;
mod context;
pub mod deadline;
mod error;
pub mod event;
mod fence_floors;
#[doc(hidden)]
pub mod gate;
pub mod hold;
mod keeper;
#[doc(hidden)]
pub mod life;
pub mod memory;
pub mod observe;
pub mod policy;
mod policy_task;
pub mod private_file;
pub mod request;
mod resume;
pub mod rng;
pub mod shell;
mod shutdown;
pub mod store;
mod store_call;
pub mod testbed;
pub mod types;
pub mod url_options;

pub use admin::BreakError;
pub use client::{Acquired, ClassLocks, Locks, LocksBuilder};
pub use deadline::{Deadline, HeartbeatDeadline};
pub use error::{Busy, Error, FenceError, LeaseLost, RunError};
pub use event::Loss;
pub use fence_floors::FenceFloors;
pub use hold::{Exclusivity, Hold, HoldStatus, LossSignal};
pub use keeper::PendingWork;
pub use life::ReleaseOutcome;
pub use request::{Request, RequestOptions, TokenSource};
pub use resume::ResumeOutcome;
pub use shutdown::ShutdownReport;
pub use types::{Fence, Holder, InvalidInput, Name, NameSet, Token, Ttl};

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
