//! Leasehold's store on Redis and Valkey.
//!
//! One lock is one plain string key, `holder|class|random|fence`, with a time to live. `redis-cli
//! GET` shows its holder, `PTTL` its remaining time. Other clients can share the lock: `SET key
//! value NX PX` to acquire it, compare-and-delete to release it.
//!
//! ```no_run
//! use leasehold_redis::{RedisOptions, RedisStore};
//!
//! let options = RedisOptions::parse("redis://127.0.0.1?map=job:=cordum:scheduler:job:")?;
//! let store = RedisStore::open(options)?;
//! # Ok::<(), leasehold_core::store::StoreError>(())
//! ```
//!
//! An uncontended acquire or release is one round trip. A release hands the lock over to the first
//! waiter in the same atomic step and wakes only that waiter.
//!
//! # What is promised
//!
//! With `appendonly yes` and `maxmemory-policy noeviction`, leases survive a restart or crash of
//! the server. Otherwise they may not; [`Store::promise`](leasehold_core::store::Store::promise)
//! reports which case applies and why. Fences grow even if the server loses all its data, as long
//! as its clock does not go back.
//!
//! # What is not
//!
//! Redis expires keys by its wall clock and replicates asynchronously. A clock that jumps ahead, or
//! a fail-over that loses a write, can end a lease early. No client can prevent that: a lock for
//! correctness needs the fence checked where the data lives.
//!
//! # Map
//!
//! - `backend`: the `Store` implementation, and `redis://` for the registry
//! - `options`: the URL and its parameters
//! - `keys`, `slot`, `value`: names to keys, hash slots, and the value of a lock's key
//! - `script` and its five Lua files: each operation as the server runs it
//! - `acquire`, `renew`, `release`, `inspect`, `promise`: one module per operation
//! - `documents`: small named records beside the locks
//! - `wake`: the subscription that wakes waiters and followers of documents
//! - `connection`: connections, deadlines and reconnecting
//! - `error`: which server error means that nothing was done
//! - `examine`: findings about a server, for `leasehold doctor`
//! - `script_client`: runs scripts of other crates on the same kind of connection
//!
//! Terms: see `docs/glossary.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod backend;
mod connection;
mod documents;
mod error;
mod examine;
mod inspect;
mod keys;
mod options;
mod promise;
mod release;
mod renew;
mod script;
mod script_client;
mod slot;
#[cfg(feature = "testbed")]
pub mod testkit;
mod transport_check;
mod value;
mod wake;

pub use backend::{RedisBackend, RedisStore};
pub use examine::examine;
pub use keys::{DEFAULT_PREFIX, KeyMap, RESERVED_PREFIX};
pub use options::RedisOptions;
pub use script_client::{LuaScript, ScriptClient};

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
