//! The daemon: the library's promises over HTTP.
//!
//! The server adds nothing to the story. [`locks`](self) passes one question each on to the store, with the client's
//! token; what it keeps for clients is a `Hold` in a map. Every request passes one gate ([`auth`]), which knows what each
//! route demands and refuses what was not declared; every refusal is `application/problem+json`. [`Mount`] adds further
//! routes behind the same gate.
//!
//! ```no_run
//! use leasehold_server::{Config, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = leasehold::StoreUrl::parse("sqlite:/var/lib/leasehold/locks.db")?.open()?;
//! let config = Config::new("127.0.0.1:7420".parse()?);
//! let server = Server::bind(config, store, |locks| locks, Vec::new()).await?;
//! println!("{}", server.url());
//! server.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod app;
mod audit;
pub mod auth;
mod codes;
mod config;
mod connection;
mod dashboard;
mod document;
mod door;
mod drills;
mod events;
mod health;
mod holds;
mod ledger;
mod locks;
mod me;
mod metrics;
mod numbers;
mod openapi;
mod parts;
mod past;
mod peer;
mod places;
mod plane;
mod policies;
mod problem;
mod record;
mod routes;
mod scrape;
mod server;
mod tls;
mod waiters;

pub use audit::{Verified, verify as verify_audit};
pub use codes::{CODES, Code};
pub use config::{Config, TlsFiles};
pub use document::Caller;
pub use door::Door;
pub use ledger::{Full, Scribe, Step};
pub use numbers::Numbers;
pub use openapi::document as openapi_document;
pub use parts::Parts;
pub use problem::Refusal;
pub use routes::Mount;
pub use scrape::Scrape;
pub use server::{Opened, Server, StartError};
