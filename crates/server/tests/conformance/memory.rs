//! Over the memory store, which the daemon makes available to several processes.

use std::sync::Arc;

use leasehold::clock::BootClock;
use leasehold::store::SharedStore;
use leasehold_conformance::{Fixture, TakerCommand};
use leasehold_core::memory::MemoryStore;
use tokio::sync::Mutex;

use crate::served::{ServedStore, open};

struct Memory {
    store: SharedStore,
    served: Mutex<ServedStore>,
    url: String,
}

async fn memory() -> Memory {
    let store: SharedStore = Arc::new(MemoryStore::new(BootClock::shared()));
    let served = ServedStore::start(Arc::clone(&store)).await;
    Memory { url: served.url(), store, served: Mutex::new(served) }
}

#[async_trait::async_trait]
impl Fixture for Memory {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open(&self.url)
    }

    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        self.served.lock().await.restart(Arc::clone(&self.store)).await;
        open(&self.url)
    }

    fn taker(&self) -> Option<TakerCommand> {
        taker_command(&self.url).ok()
    }
}

leasehold_conformance::taker!(async |url: String| open(&url));

leasehold_conformance::suite! {
    time: Real,
    fixture: memory().await,
    // A daemon sends no wake-ups for documents: followers read from time to time.
    skips: ["documents::a_change_wakes_each_follower"],
}
