//! Leases with explicit failure policy, on the store of your choice.
//!
//! [`open`] takes a URL and answers [`Locks`]; a workload risk *class* decides what happens when acquire errs, when
//! renewal fails and when release fails.
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
//! // The short way: acquire, hold, renew, fence, release.
//! let fence = locks.class("scheduler").run("job:42", async |hold| hold.fence()).await??;
//! println!("done under fence {fence}");
//!
//! // The long way.
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
//! | `memory:` | this process's memory | nobody: tests and examples |
//! | `sqlite:PATH`, `sqlite:///PATH`, `/PATH`, `./PATH` | one SQLite file (feature `sqlite`) | processes of one host |
//! | `redis://HOST`, `rediss://HOST` | Redis or Valkey (feature `redis`) | everyone who reaches it |
//! | `http://HOST:PORT`, `https://HOST` | a daemon's store, through `leasehold serve` (feature `http`) | everyone who reaches it |
//!
//! What is promised, and what no lock can promise, stands at the top of [`leasehold_core`].

mod examine;
mod open;
mod url;

pub use leasehold_core;
pub use leasehold_core::{
    Acquired, BreakError, Busy, ClassLocks, Error, Exclusivity, Fence, Hold, Holder, Invalid, Left, Locks,
    Loss, Lost, Name, NoFence, Outcome, Request, RunError, Shutdown, Standing, Ttl,
};
pub use leasehold_core::{clock, event, observe, policy, store};
#[cfg(feature = "http")]
pub use leasehold_http as http;
pub use open::{OpenError, Opening, open};
pub use url::{StoreUrl, redact};

/// What most programs import.
pub mod prelude {
    pub use crate::{
        Acquired, Error, Exclusivity, Fence, Hold, Locks, Lost, Name, NoFence, Outcome, RunError, open,
    };
}
