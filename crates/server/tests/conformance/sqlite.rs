//! Over a SQLite file that the daemon closes and opens again.

use std::sync::Arc;

use leasehold::store::SharedStore;
use leasehold_conformance::{Fixture, TakerCommand};
use leasehold_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::Mutex;

use crate::served::{ServedStore, open};

struct Sqlite {
    folder: tempfile::TempDir,
    served: Mutex<ServedStore>,
    url: String,
}

fn file(folder: &tempfile::TempDir) -> SharedStore {
    let options = SqliteOptions::new(folder.path().join("locks.db"));
    Arc::new(SqliteStore::open(options).unwrap())
}

async fn sqlite() -> Sqlite {
    let folder = tempfile::tempdir().unwrap();
    let served = ServedStore::start(file(&folder)).await;
    Sqlite { url: served.url(), folder, served: Mutex::new(served) }
}

#[async_trait::async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open(&self.url)
    }

    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        self.served.lock().await.restart(file(&self.folder)).await;
        open(&self.url)
    }

    fn taker(&self) -> Option<TakerCommand> {
        taker_command(&self.url).ok()
    }
}

leasehold_conformance::taker!(async |url: String| open(&url));

leasehold_conformance::suite! {
    time: Real,
    fixture: sqlite().await,
    // A daemon sends no wake-ups for documents: followers read from time to time.
    skips: ["documents::a_change_wakes_each_follower"],
}
