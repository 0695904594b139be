//! Redis under test for drills, throw-away servers, and for tests a proxy that breaks connections to them.

#[cfg(feature = "testing")]
mod proxy;
mod server;
mod testbed;

#[cfg(feature = "testing")]
pub use proxy::{Fault, Proxy};
pub use server::RedisServer;
pub use testbed::RedisTestbeds;
