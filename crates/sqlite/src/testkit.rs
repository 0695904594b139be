//! SQLite files under test: throw-away ones, and external ones that their operator has marked.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::rng::Random;
use leasehold_core::shell::quote;
use leasehold_core::testbed::{
    DRILLABLE_MARK, StoreFault, Testbed, TestbedError, TestbedFactory, TestbedInfo, TestbedSetup,
    random_share,
};
use rusqlite::{Connection, OpenFlags};

use crate::SqliteOptions;

/// How long the testbed waits for the file while workers use it.
const FILE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const FAULTS: &[StoreFault] = &[
    StoreFault::new("vacuum", "the whole file is rewritten"),
    StoreFault::new("checkpoint", "the journal is moved into the file"),
    StoreFault::new("reader", "a reader does not end"),
];

/// Makes testbeds of SQLite files.
#[derive(Debug)]
pub struct SqliteTestbeds;

#[async_trait]
impl TestbedFactory for SqliteTestbeds {
    fn info(&self) -> TestbedInfo {
        TestbedInfo::new("sqlite", "A SQLite file in a temporary folder")
            .with_faults(FAULTS)
            .with_seed_share(1)
    }

    async fn start(&self, setup: TestbedSetup) -> Result<Box<dyn Testbed>, TestbedError> {
        let path = setup.folder.join(format!("{}.db", setup.name));
        let url = format!("sqlite:{}", path.display());
        Ok(Box::new(SqliteTestbed::new(path, url)))
    }

    async fn attach(&self, url: &str) -> Result<Box<dyn Testbed>, TestbedError> {
        let options = SqliteOptions::parse(url).map_err(TestbedError::store)?;
        let path = options.path().to_owned();
        let marked = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .and_then(|db| db.table_exists(None, DRILLABLE_MARK))
            .map_err(|error| TestbedError::Store(format!("{options}: {error}")))?;
        if !marked {
            let file = quote(&path.display().to_string());
            let how = format!("sqlite3 {file} 'CREATE TABLE \"{DRILLABLE_MARK}\" (why TEXT)'");
            return Err(TestbedError::not_marked(&options.to_string(), &how));
        }
        Ok(Box::new(SqliteTestbed::new(path, url.to_owned())))
    }
}

/// One file. Its outage: another connection holds an exclusive lock on it.
#[derive(Debug)]
pub struct SqliteTestbed {
    path: PathBuf,
    url: String,
    exclusive_lock: Mutex<Option<Connection>>,
}

impl SqliteTestbed {
    /// The file at this path, which clients open by this URL.
    #[must_use]
    pub fn new(path: PathBuf, url: String) -> Self {
        Self { path, url, exclusive_lock: Mutex::new(None) }
    }

    /// Runs `work` on a connection of its own, on a blocking thread.
    async fn with_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<rusqlite::Result<T>, TestbedError> {
        let path = self.path.clone();
        let open = move || {
            let db = Connection::open(path)?;
            db.busy_timeout(FILE_BUSY_TIMEOUT)?;
            work(db)
        };
        tokio::task::spawn_blocking(open).await.map_err(TestbedError::store)
    }

    fn lock_slot(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.exclusive_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Testbed for SqliteTestbed {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn single_writer_file(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    async fn block(&self) -> Result<(), TestbedError> {
        // Exclusive, so that readers are blocked too: an unreachable server would not answer them
        // either.
        let locked = self.with_connection(|db| db.execute_batch("BEGIN EXCLUSIVE").map(|()| db)).await?;
        let db = locked.map_err(|error| TestbedError::Store(format!("cannot block the file: {error}")))?;
        *self.lock_slot() = Some(db);
        Ok(())
    }

    async fn unblock(&self) {
        // Closing the connection rolls its transaction back: the fault itself writes nothing.
        drop(self.lock_slot().take());
    }

    async fn inject(&self, fault: &str, ttl: Duration, random: &dyn Random) -> Result<(), TestbedError> {
        // Both are drawn for every fault: seeds refer to this order of draws.
        let (lasts, pause) = (random_share(ttl, random, 30, 200), random_share(ttl, random, 1, 10));
        let fault = fault.to_owned();
        #[allow(clippy::disallowed_methods, reason = "a blocking thread of its own holds the file")]
        let disturb = move |db: Connection| match &*fault {
            "vacuum" => db.execute_batch("VACUUM"),
            "checkpoint" => (0..5).try_for_each(|_| {
                db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                std::thread::sleep(pause);
                Ok(())
            }),
            "reader" => {
                db.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")?;
                std::thread::sleep(lasts);
                db.execute_batch("COMMIT")
            }
            _ => Err(rusqlite::Error::InvalidParameterName(fault)),
        };
        match self.with_connection(disturb).await? {
            // SQLITE_BUSY is fine: the attempt has competed with the workers for the file, which is
            // the fault.
            Ok(()) | Err(rusqlite::Error::SqliteFailure(_, _)) => Ok(()),
            Err(error) => Err(TestbedError::store(error)),
        }
    }

    async fn remove_leases(&self, name_prefixes: &[String]) -> Result<usize, TestbedError> {
        let prefixes = name_prefixes.to_vec();
        let removed = self.with_connection(move |db| {
            let mut removed = 0;
            for table in ["leases", "waiters", "tombstones"] {
                let statement = format!("DELETE FROM {table} WHERE substr(name, 1, length(?1)) = ?1");
                for prefix in &prefixes {
                    removed += db.execute(&statement, [prefix])?;
                }
            }
            Ok(removed)
        });
        removed.await?.map_err(TestbedError::store)
    }
}
