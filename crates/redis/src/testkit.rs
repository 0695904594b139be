//! Real servers for tests, and ways to break the path to them.

mod proxy;
mod server;

pub use proxy::{Fault, Proxy};
pub use server::RedisServer;
