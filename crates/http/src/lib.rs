//! Leasehold through a daemon: the store trait over its HTTP API, what `http://` and `https://` open.
//!
//! Each verb is one request to `leasehold serve`: `acquire`, `renew`, `release`, `inspect`. The lease is the
//! *client's*: it makes the token, keeps the deadline on its own clock from before the request was sent, and renews;
//! the daemon only passes the question on to its store. So a hold survives the daemon's restart, and everything that
//! core promises holds here too. `error` is the closed table of what did definitely not happen; `wake` brings hints
//! over a long poll; [`wire`] is what both ends read and write.
//!
//! ```no_run
//! use leasehold_http::{HttpOptions, HttpStore};
//!
//! let store = HttpStore::open(HttpOptions::parse("http://127.0.0.1:7420?token_file=/run/secrets/lock-token")?)?;
//! # Ok::<(), leasehold_core::store::Failure>(())
//! ```
//!
//! **Promised**: what the daemon's store promises; the way there is judged like any other: an answer that did not come
//! is *unknown*, never a no. **Not promised**: anything about a daemon whose store is `memory:` and that restarts.

mod acquire;
mod connection;
mod daemon;
mod error;
mod events;
mod examine;
mod inspect;
mod options;
mod parts;
mod promise;
mod release;
mod renew;
mod store;
mod tcp;
mod tls;
mod wake;
pub mod wire;

pub use daemon::{Asked, Daemon};
pub use events::{Events, ServerEvent};
pub use examine::examine;
pub use options::HttpOptions;
pub use parts::{Dial, Parts, Stream};
pub use store::HttpStore;
