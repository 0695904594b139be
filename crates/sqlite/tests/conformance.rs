//! The conformance suite, each case on its own file.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_conformance::{Fixture, TakerCommand};
use leasehold_core::store::SharedStore;
use leasehold_sqlite::{SqliteOptions, SqliteStore};

/// A database file in a temporary folder.
struct Sqlite {
    folder: tempfile::TempDir,
}

#[allow(clippy::expect_used, reason = "without a folder there is nothing to test")]
fn sqlite() -> Sqlite {
    Sqlite { folder: tempfile::tempdir().expect("the temporary folder must be writable") }
}

impl Sqlite {
    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }
}

fn open(path: impl Into<PathBuf>) -> anyhow::Result<SharedStore> {
    Ok(Arc::new(SqliteStore::open(SqliteOptions::new(path.into()))?))
}

#[async_trait::async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open(self.path())
    }

    fn taker(&self) -> Option<TakerCommand> {
        taker_command(self.path().to_str()?).ok()
    }
}

leasehold_conformance::taker!(async |path: String| open(path));

leasehold_conformance::suite! {
    time: Real,
    fixture: sqlite(),
    skips: [],
}
