//! Leasehold on Redis and Valkey.
//!
//! One lock is one plain string key, `holder|class|random|fence`, with a time to live: `redis-cli GET` shows who has
//! it, `PTTL` for how long. Any client that takes it with `SET key value NX PX` and gives it back by
//! compare-and-delete excludes us and is excluded by us.
//!
//! ```no_run
//! use leasehold_redis::{RedisOptions, RedisStore};
//!
//! let options = RedisOptions::parse("redis://127.0.0.1?map=job:=cordum:scheduler:job:")?;
//! let store = RedisStore::open(options)?;
//! # Ok::<(), leasehold_core::store::Failure>(())
//! ```
//!
//! Taking and giving back a lock that nobody else wants are one round trip each. A release hands the lock to the first
//! waiter in the same step and wakes only that one.
//!
//! # What is promised
//!
//! With `appendonly yes` and `maxmemory-policy noeviction`, leases survive a restart or crash of the server; without,
//! they may not ([`Store::promise`](leasehold_core::store::Store::promise) says which it is and why). Fences grow even
//! if the server loses all its data, as long as its clock does not go back.
//!
//! # What is not
//!
//! Redis expires keys by its wall clock and replicates asynchronously. A clock that jumps ahead, or a fail-over
//! that forgets a write, can end a lease early. No client can prevent that: a lock for correctness needs the fence
//! checked where the data lives.
//!
//! # Map
//!
//! `options` (the URL), `keys` and `slot` (names to keys), `script` and its four Lua files (each step as the server
//! runs it), `acquire`, `renew`, `release`, `inspect`, `promise`, `wake` (the verbs), `examine` (what can be wrong with a server), `connection` (the way there),
//! `error` (what each failure means).

mod acquire;
mod connection;
mod error;
mod eval;
mod examine;
mod inspect;
mod keys;
mod options;
mod promise;
mod release;
mod renew;
mod script;
mod slot;
mod store;
#[cfg(feature = "testing")]
pub mod testkit;
mod value;
mod wake;

pub use eval::{Lua, Scripting};
pub use examine::examine;
pub use keys::{DEFAULT_PREFIX, KeyMap, RESERVED};
pub use options::RedisOptions;
pub use store::RedisStore;
