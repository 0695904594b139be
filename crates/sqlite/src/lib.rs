//! Leasehold's embedded store: several processes on one host share one SQLite file.
//!
//! No server and no set-up: the first process that opens the file creates it. Holders renew their
//! leases. A release wakes the next waiter within milliseconds, in order, also across processes.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_core::{Holder, Name, Token, Ttl, rng::OsRandom};
//! use leasehold_core::store::{AcquireRequest, AcquireResponse, ReleaseRequest, Store};
//! use leasehold_sqlite::{SqliteOptions, SqliteStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("locks.db");
//! let store = SqliteStore::open(SqliteOptions::new(path))?;
//! let (name, within) = (Name::new("job:42")?, Duration::from_secs(2));
//! let token = Token::fresh(&Holder::of_this_process(), "scheduler", &OsRandom);
//! let ttl = Ttl::new(Duration::from_secs(60))?;
//! let request = AcquireRequest::new(name.clone(), token.clone(), ttl);
//! if let AcquireResponse::Granted(grant) = store.acquire(&request, within).await? {
//!     println!("ours, with fence {}", grant.fence);
//!     store.release(&ReleaseRequest::by_owner(name, token), within).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//!
//! - An acknowledged lease survives the death (`kill -9`) of any process at any moment. It ends
//!   with the boot: leases are timed by the boot clock. Changing the wall clock does not move that
//!   clock, and suspending the machine does not stop it.
//! - Fences of a name only grow, also across reboots, power cuts and a lost file. The condition is
//!   that the wall clock was not set back in between (see [`Durability`] and ADR 0005).
//! - The file holds no secrets: it stores hashes of tokens. Only its owner can read it.
//!
//! # Not promised
//!
//! - More than one host. Network and FUSE filesystems are refused.
//! - Surviving the loss of the disk. There is one copy.
//! - Strict order after an *expiry*: the first acquire request then wins.
//!   Releases hand over in queue order.
//!
//! # Map
//!
//! One module per operation: `acquire`, `renew`, `release`, `inspect`. Each is a function from a
//! step (one transaction at one moment) to a response. `documents` has all operations on documents.
//!
//! - `backend`: the `Store` implementation, which sends each operation to a worker, and `sqlite:` for the registry
//! - `worker`: a thread with its own connection and two priorities
//! - `connection`, `transaction`, `step`: open the file and run one step on it
//! - `lease`, `waiter`, `counter`, `purge`: the rows, and the removal of expired ones
//! - `document_rows`: the same of documents, and their clock
//! - `schema`, `boot`, `filesystem`: whether this file and place can be used
//! - `wake`, `wake_socket`: wake-up hints between processes
//! - `busy_timeout`, `writer_watch`: how long a step waits for the write lock,
//!   and which process holds it
//! - `error`: which SQLite error means that nothing was done, and which leaves the outcome unknown
//! - `promise`: what the file promises at its place
//! - `examine`: findings about a file and its place, for `leasehold doctor`
//! - `testkit`: a file under test, for drills (feature `testbed`)
//!
//! Terms: see `docs/glossary.md`.

mod acquire;
mod backend;
mod boot;
mod busy_timeout;
mod connection;
mod counter;
mod document_rows;
mod documents;
mod error;
mod examine;
mod filesystem;
mod inspect;
mod lease;
mod options;
mod promise;
mod purge;
mod release;
mod renew;
mod schema;
mod step;
#[cfg(feature = "testbed")]
pub mod testkit;
mod transaction;
mod waiter;
mod wake;
mod wake_socket;
mod worker;
mod writer_watch;

pub use backend::{SqliteBackend, SqliteStore};
pub use examine::examine;
pub use options::{Durability, SqliteOptions};

/// Creates the folder and an empty database file that only its owner may read, unless they exist. For
/// other databases of the same process, such as the control plane's.
///
/// # Errors
/// The folder or the file cannot be created.
pub fn create_database_file(path: &std::path::Path) -> Result<(), leasehold_core::store::StoreError> {
    connection::create_folder(path)?;
    connection::create_file(path, &leasehold_core::rng::OsRandom)
}

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
