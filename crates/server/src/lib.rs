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
//! let locks = leasehold::open("sqlite:/var/lib/leasehold/locks.db").build().await?;
//! let server = Server::bind(Config::new("127.0.0.1:7420".parse()?), locks, Vec::new()).await?;
//! println!("{}", server.url());
//! server.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod app;
pub mod auth;
mod config;
mod connection;
mod document;
mod health;
mod locks;
mod page;
mod peer;
mod problem;
mod routes;
mod server;
mod tls;
mod waiters;

pub use config::{Config, TlsFiles};
pub use document::Caller;
pub use problem::Refusal;
pub use routes::Mount;
pub use server::{Server, StartError};
