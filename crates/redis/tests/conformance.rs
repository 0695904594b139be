//! The conformance suite, each case on its own server.

use std::sync::Arc;

use leasehold_conformance::{Fixture, TakerCommand};
use leasehold_core::store::SharedStore;
use leasehold_redis::testkit::RedisServer;
use leasehold_redis::{RedisOptions, RedisStore};
use tokio::sync::Mutex;

/// A server that keeps its data across restarts.
struct Redis {
    server: Mutex<RedisServer>,
    url: String,
}

#[allow(clippy::expect_used)] // Outside a test function, but of no use without a server either.
async fn redis() -> Redis {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let server = server.expect("redis-server must be installed");
    Redis { url: server.url(), server: Mutex::new(server) }
}

fn open(url: &str) -> anyhow::Result<SharedStore> {
    Ok(Arc::new(RedisStore::open(RedisOptions::parse(url)?)?))
}

#[async_trait::async_trait]
impl Fixture for Redis {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open(&self.url)
    }

    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        self.server.lock().await.restart().await?;
        open(&self.url)
    }

    fn taker(&self) -> Option<TakerCommand> {
        taker_command(&self.url).ok()
    }
}

leasehold_conformance::taker!(async |url: String| open(&url));

leasehold_conformance::suite! {
    time: Real,
    fixture: redis().await,
    skips: [],
}
