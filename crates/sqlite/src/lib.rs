//! Leasehold's embedded store: several processes on one host share one SQLite file.
//!
//! No server, no set-up: the first process to open the file makes it. Whoever holds a lease renews it;
//! whoever waits is woken by the release within milliseconds, in order, also across processes.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_core::{Holder, Name, Token, Ttl, rng::OsRandom};
//! use leasehold_core::store::{Answer, Ask, Giving, Store};
//! use leasehold_sqlite::{SqliteOptions, SqliteStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("locks.db");
//! let store = SqliteStore::open(SqliteOptions::new(path))?;
//! let (name, within) = (Name::new("job:42")?, Duration::from_secs(2));
//! let token = Token::fresh(&Holder::of_this_process(), "scheduler", &OsRandom);
//! let ask = Ask::new(name.clone(), token.clone(), Ttl::new(Duration::from_secs(60))?);
//! if let Answer::Granted(grant) = store.acquire(&ask, within).await? {
//!     println!("ours, with fence {}", grant.fence);
//!     store.release(&Giving::owned(name, token), within).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//!
//! - An acknowledged lease survives the death (`kill -9`) of any process, at any moment. It ends with the boot:
//!   leases are timed by the boot clock, which no change of the wall clock moves and which suspending does not stop.
//! - Fences of a name only grow, also across reboots, power cuts and a lost file, as long as the wall clock was
//!   not set back in between (see [`Durability`] and ADR 0005).
//! - The file holds no secrets: tokens are kept as hashes. It is made readable for its owner only.
//!
//! # Not promised
//!
//! - More than one host. Network and FUSE filesystems are refused.
//! - The loss of the disk. There is one copy.
//! - Strict order after an *expiry*: whoever asks first then is served first. Releases are handed over in order.
//!
//! # Map
//!
//! The verbs are `acquire`, `renew`, `release` and `inspect`, each a function from a step (one transaction,
//! one moment) to an answer. `lease`, `waiter` and `counter` are the rows they work on, `purge` removes old
//! ones. `connection` runs a step, `worker` brings it to the right thread, `wake` and `mailbox` carry hints
//! between processes, `error` is the table of what may have happened. `examine` says what is wrong with a file or its place.

mod acquire;
mod blocker;
mod boot;
mod connection;
mod counter;
mod error;
mod examine;
mod filesystem;
mod inspect;
mod lease;
mod mailbox;
mod options;
mod patience;
mod purge;
mod release;
mod renew;
mod schema;
mod step;
mod store;
mod transaction;
mod waiter;
mod wake;
mod worker;

pub use examine::examine;
pub use options::{Durability, SqliteOptions};
pub use store::SqliteStore;
