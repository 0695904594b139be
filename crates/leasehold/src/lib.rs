//! Leases with explicit failure policy, on the store of your choice.
//!
//! [`open`] takes a store's URL and returns [`Locks`]. The *class* of a lock, its risk class,
//! decides what happens when an acquire, a renewal or a release fails.
//!
//! ```
//! use leasehold::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let policies = folder.path().join("leasehold.toml");
//! # std::fs::write(&policies, "[class.report]\nttl = \"45s\"\n")?;
//! # let url = format!("sqlite:{}", folder.path().join("locks.db").display());
//! let locks = leasehold::open(&url).policies(&policies).build().await?;
//!
//! // The short form: acquires, renews, fences and releases.
//! let fence = locks.class("scheduler").run("job:42", async |hold| hold.fence()).await??;
//! println!("done under fence {fence}");
//!
//! // The long form.
//! match locks.class("approval").acquire("job:42").await? {
//!     Acquired::Held(hold) => {
//!         hold.check()?; // right before each protected step
//!         hold.release().await;
//!     }
//!     Acquired::Busy(busy) => println!("held by {} for {:?}", busy.holder, busy.remaining),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | URL | store | shared by |
//! |---|---|---|
//! | `memory:` | this process's memory | no other process; for tests and examples |
//! | `sqlite:PATH`, `sqlite:///PATH`, `/PATH`, `./PATH` | one SQLite file (feature `sqlite`) | processes of one host |
//! | `redis://HOST`, `rediss://HOST` | Redis or Valkey (feature `redis`) | all hosts that reach it |
//! | `http://HOST:PORT`, `https://HOST` | a daemon, `leasehold serve` (feature `http`) | all hosts that reach it |
//!
//! | module | contents |
//! |---|---|
//! | `open` | [`open`] and its builder |
//! | `url` | [`StoreUrl`]: a parsed URL, which opens and examines its store |
//! | `registry` | [`register`]: adds a store of your own; finds the backend of a URL; lists testbeds |
//! | `backends` | the only list of the built-in stores |
//! | [`prelude`] | the imports of most programs |
//!
//! The documentation of [`leasehold_core`] says what is promised, and what no lock can promise.
//!
//! Terms: see `docs/glossary.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backends;
mod open;
mod registry;
mod url;

pub use leasehold_core::store::redact;
pub use leasehold_core::{
    Acquired, BreakError, Busy, ClassLocks, Deadline, Error, Exclusivity, Fence, FenceError, Hold,
    HoldStatus, Holder, InvalidInput, LeaseLost, Locks, LocksBuilder, Loss, LossSignal, Name, PendingWork,
    ReleaseOutcome, Request, RequestOptions, ResumeOutcome, RunError, ShutdownReport, Token, TokenSource,
    Ttl,
};
pub use leasehold_core::{clock, event, memory, observe, policy, rng, store, testbed};
#[cfg(feature = "http")]
pub use leasehold_http as http;
pub use open::{OpenBuilder, OpenError, open};
pub use registry::{backends, known_urls, register, sim_profiles, testbeds};
pub use url::StoreUrl;

/// The imports of most programs.
pub mod prelude {
    pub use crate::{
        Acquired, Error, Exclusivity, Fence, FenceError, Hold, LeaseLost, Locks, Name, ReleaseOutcome,
        RunError, open,
    };
}

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
