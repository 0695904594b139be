//! A store that reaches its leases through a daemon's HTTP API: what `http://` and `https://` open.
//!
//! Each operation is one request to `leasehold serve`: acquire, renew, release, inspect. The lease
//! is the *client's*: the client makes the token, counts the deadline on its own clock from before
//! it sent the request, and renews. The daemon only passes the request on to its store. So a hold
//! survives a restart of the daemon, and all guarantees of core apply here too.
//!
//! Map of the modules:
//!
//! - `store` implements core's `Store` with one file per operation: `acquire`, `renew`, `release`,
//!   `inspect`, `promise`, and `wake` for hints over a long poll.
//! - `backend` opens the store by URL, for the registry.
//! - `daemon` and `events` are the operator's client: everything beyond the store trait.
//! - `connection`, `tcp`, `tls`, `options` and `environment` make and reuse connections; `credentials` and
//!   `owner_token` find the API token.
//! - `error` is the closed table of responses that mean *definitely not done*; `examine` is for
//!   `leasehold doctor`.
//! - [`wire`] (`leasehold-wire`) has the JSON types and error codes that client and daemon share.
//!
//! ```no_run
//! use leasehold_http::{HttpOptions, HttpStore};
//!
//! let store = HttpStore::open(HttpOptions::parse("http://127.0.0.1:7420?token_file=/run/secrets/lock-token")?)?;
//! # Ok::<(), leasehold_core::store::StoreError>(())
//! ```
//!
//! **Promised**: what the daemon's store promises. A missing response is an *unknown* outcome,
//! never a definite failure. **Not promised**: anything about a daemon whose store is `memory:` and
//! that restarts.
//!
//! Terms: see `docs/glossary.md`.

mod acquire;
mod backend;
mod connection;
mod credentials;
mod daemon;
mod documents;
mod environment;
mod error;
mod events;
mod examine;
mod inspect;
mod options;
mod owner_token;
mod promise;
mod release;
mod renew;
mod store;
mod tcp;
mod tls;
mod wake;

pub use leasehold_wire as wire;

pub use backend::HttpBackend;
pub use daemon::{ApiRequest, DaemonClient, DaemonResult};
pub use environment::{Connector, Environment, Stream};
pub use events::{EventStream, ServerEvent};
pub use examine::examine;
pub use options::HttpOptions;
pub use owner_token::owner_token_path;
pub use store::HttpStore;

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
