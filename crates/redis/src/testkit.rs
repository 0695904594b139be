//! Redis under test for drills, and throw-away servers.

mod server;
mod testbed;

pub use server::RedisServer;
pub use testbed::RedisTestbeds;
