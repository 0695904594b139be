//! Over a Redis server that is restarted together with the daemon.

use std::sync::Arc;

use leasehold::store::SharedStore;
use leasehold_conformance::{Fixture, TakerCommand};
use leasehold_redis::testkit::RedisServer;
use leasehold_redis::{RedisOptions, RedisStore};
use tokio::sync::Mutex;

use crate::served::{ServedStore, open};

struct Redis {
    server: Mutex<(RedisServer, ServedStore)>,
    url: String,
}

fn store(server: &RedisServer) -> SharedStore {
    let options = RedisOptions::parse(&server.url()).unwrap();
    Arc::new(RedisStore::open(options).unwrap())
}

async fn redis() -> Redis {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let server = server.expect("redis-server must be installed");
    let served = ServedStore::start(store(&server)).await;
    Redis { url: served.url(), server: Mutex::new((server, served)) }
}

#[async_trait::async_trait]
impl Fixture for Redis {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open(&self.url)
    }

    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        let (server, served) = &mut *self.server.lock().await;
        server.restart().await?;
        served.restart(store(server)).await;
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
    // A daemon sends no wake-ups for documents: followers read from time to time.
    skips: ["documents::a_change_wakes_each_follower"],
}
