//! The daemon: Leasehold's locks and control plane over HTTP.
//!
//! The server adds no lock semantics of its own. A lock route passes one request on to the store,
//! with the client's token. A hold that the daemon keeps for a client is an ordinary `Hold` of the
//! daemon's own lock client. Every request passes one middleware, the gate (see [`auth`]), which
//! knows what each route requires and refuses undeclared routes. Every error response is
//! `application/problem+json`. [`Mount`] adds routes of other crates behind the same gate.
//!
//! Map of the modules:
//!
//! - `api`: `routes` (the route table), `openapi`, `document` (extractors), and the handlers: `locks` (client-kept leases), `holds` (daemon-kept holds), `plane`
//!   (jobs, approvals, workflows, runs), `policies`, `events`, `history`, `drills`, `health`,
//!   `metrics`, `whoami`, `dashboard`.
//! - [`auth`]: identities, rights, rate limits, and the gate.
//! - `transport`: `connection`, `listener`, `tls`, `peer`, `browser` (checks of `Host` and `Origin`),
//!   `scrape` (a listener for metrics only).
//! - `state`: `app` (what handlers share), `state_db` (the daemon's SQLite file), `audit`
//!   (log chained by MACs), `record` (events, metrics, history), `metrics_registry`, `waiters`,
//!   `wait_slots`, `holds` (kept for clients), `undo` (acquires whose callers disconnected).
//! - `problem`: error responses. Requests go `transport`, `auth`, `api`, `state`; `state` uses none of the others' handlers.
//! - `server` (start and stop), `config`, `environment` (clock, randomness), `followed_file`.
//!
//! Terms: see `docs/glossary.md`.
//!
//! ```no_run
//! use leasehold_server::{Config, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = leasehold::StoreUrl::parse("sqlite:/var/lib/leasehold/locks.db")?.open()?;
//! let mut config = Config::new("127.0.0.1:7420".parse()?);
//! config.tokens = Some("/etc/leasehold/tokens.toml".into());
//! let server = Server::bind(config, store, |locks| locks, Vec::new()).await?;
//! println!("{}", server.url());
//! server.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod api;
pub mod auth;
mod config;
mod environment;
mod followed_file;
mod problem;
mod server;
mod state;
mod transport;

pub use api::dashboard::dashboard_url;
pub use api::document::Caller;
pub use api::openapi::document as openapi_document;
pub use api::routes::{Mount, required_grant};
pub use config::{Config, Quotas, TlsFiles};
pub use environment::Environment;
pub use leasehold_wire::ErrorCode;
pub use problem::Refusal;
pub use server::{Server, StartError, UnboundServer};
pub use state::audit::{AuditError, VerifiedAudit, verify as verify_audit};
pub use state::metrics_registry::{
    DAMAGED_AUDIT_SEGMENTS_HELP, DAMAGED_AUDIT_SEGMENTS_METRIC, MetricsRegistry,
};
pub use state::state_db::{DatabaseTask, DatabaseWriter, WriterFull};
pub use transport::listener::ConnectionListener;
pub use transport::scrape::MetricsListener;

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
