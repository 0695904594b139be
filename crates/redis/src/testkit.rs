//! Throw-away servers for drills and tests, and for tests a proxy that breaks connections to them.

#[cfg(feature = "testing")]
mod proxy;
mod server;

#[cfg(feature = "testing")]
pub use proxy::{Fault, Proxy};
pub use server::RedisServer;
