//! The embedded store: several replicas on one host share one SQLite file, next to the lock file.
//!
//! A file of its own, because SQLite has one writer per file: a burst of job writes must not delay lock
//! renewals. Each step is one transaction that takes the write lock before it reads (`BEGIN IMMEDIATE`).
//! Only its statements run under that lock; the disk sync follows after the commit.

mod log_sync;
mod schema;
mod statements;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use log_sync::LogSync;

use super::memory::unix_millis;
use super::{
    Delivery, Disposition, Document, DocumentEvent, DocumentKey, DocumentKind, DocumentPage, DocumentQuery,
    Message, PlaneStore, Queue, WriteRequest, WriteResponse,
};

/// How long a step waits for the write lock of other processes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A plane store in one SQLite file.
pub struct SqlitePlane {
    database: Arc<OpenDatabase>,
}

struct OpenDatabase {
    path: PathBuf,
    clock: SharedClock,
    db: Mutex<Connection>,
    log_sync: LogSync,
}

/// The durability that a step needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepDurability {
    /// The step only reads.
    ReadOnly,
    /// A power cut may undo the step, because it would only be repeated: messages are redelivered until
    /// acknowledged.
    NotSynced,
    /// The response waits until the step is on the disk. So does a refusal: it reports another write, which
    /// must be durable by then.
    Synced,
}

impl SqlitePlane {
    /// Opens the file, and creates it and its tables if needed.
    ///
    /// # Errors
    /// The file cannot be created or written, or is not a plane's database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::with_clock(path, BootClock::shared())
    }

    /// Opens the file with another clock. All processes that share the file need the same wall time.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn with_clock(path: impl AsRef<Path>, clock: SharedClock) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        leasehold_sqlite::create_database_file(&path)?;
        let mut tries = 0;
        let (db, disk) = loop {
            match Self::connect(&path) {
                // Where SQLite fears a deadlock, it returns "busy" without calling the busy handler: while
                // the journal mode changes, and while the last user closes the file.
                Err(error) if is_busy(&error) && busy_handler(tries) => tries += 1,
                opened => break opened?,
            }
        };
        Ok(Self::from_parts(path, clock, db, disk))
    }

    /// One attempt to open the file. Another process may do the same meanwhile.
    fn connect(path: &Path) -> Result<(Connection, LogSync), StoreError> {
        let mut db = Connection::open(path).map_err(store_error)?;
        db.busy_handler(Some(busy_handler)).map_err(store_error)?;
        db.set_prepared_statement_cache_capacity(64);
        schema::ensure_tables(&mut db)?;
        let disk = LogSync::for_connection(&db)?;
        Ok((db, disk))
    }

    fn from_parts(path: PathBuf, clock: SharedClock, db: Connection, disk: LogSync) -> Self {
        let inner = OpenDatabase { path, clock, db: Mutex::new(db), log_sync: disk };
        Self { database: Arc::new(inner) }
    }

    /// Runs one step on a blocking thread. Nothing takes effect before the commit, so each error before it
    /// is definite.
    async fn run_step<T, F>(&self, kind: StepDurability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, u64) -> Result<T, StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.database);
        let step = move || {
            let mut db = inner.db.lock().unwrap_or_else(PoisonError::into_inner);
            let behaviour = match kind {
                StepDurability::ReadOnly => TransactionBehavior::Deferred,
                StepDurability::NotSynced | StepDurability::Synced => TransactionBehavior::Immediate,
            };
            let tx = db.transaction_with_behavior(behaviour).map_err(store_error)?;
            // Read after the write lock is held: a step that waited for it must not use an old time.
            let now = unix_millis(inner.clock.wall());
            let out = work(&tx, now)?;
            tx.commit().map_err(|error| match error.sqlite_error_code() {
                // A busy commit did nothing. After any other error the commit may have reached the log.
                Some(ErrorCode::DatabaseBusy) => store_error(error),
                _ => StoreError::unknown(StoreErrorKind::Unreachable, "the commit did not answer clearly")
                    .with_source(error),
            })?;
            if kind == StepDurability::Synced {
                let step = inner.log_sync.count_commit();
                // Other threads of this process may write while this one waits for the disk.
                drop(db);
                inner.log_sync.wait_until_synced(step)?;
            }
            Ok(out)
        };
        match tokio::task::spawn_blocking(step).await {
            Ok(out) => out,
            Err(_) => Err(StoreError::unknown(StoreErrorKind::Corrupt, "the plane store's code panicked")),
        }
    }
}

// SQLite's own busy handler backs off to 100 ms, far longer than any step here takes.
#[allow(clippy::disallowed_methods)]
fn busy_handler(tries: i32) -> bool {
    let pause = Duration::from_micros(200 << (tries / 4).clamp(0, 4));
    std::thread::sleep(pause);
    // The sum of the sleeps: 3.2 ms each after the first sixteen.
    tries < i32::try_from(BUSY_TIMEOUT.as_millis() * 10 / 32).unwrap_or(i32::MAX)
}

fn is_busy(error: &StoreError) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<rusqlite::Error>())
        .is_some_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
}

// Inside a transaction nothing has taken effect yet, so the error is always definite.
fn store_error(error: rusqlite::Error) -> StoreError {
    let code = error.sqlite_error_code().unwrap_or(ErrorCode::Unknown);
    let (cause, what) = match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            (StoreErrorKind::Overloaded, "other processes kept the plane's database busy")
        }
        ErrorCode::ReadOnly => (StoreErrorKind::ReadOnly, "the plane's database cannot be written"),
        ErrorCode::PermissionDenied => (StoreErrorKind::Denied, "no right to the plane's database"),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            (StoreErrorKind::Corrupt, "the plane's database is damaged")
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => {
            (StoreErrorKind::Unreachable, "the plane's database cannot be reached")
        }
        ErrorCode::DiskFull | ErrorCode::OutOfMemory => (StoreErrorKind::Overloaded, "there is no room left"),
        _ => (StoreErrorKind::Misconfigured, "the plane's database refused a statement"),
    };
    StoreError::not_done(cause, format!("{what}: {error}")).with_source(error)
}

impl fmt::Debug for SqlitePlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlitePlane").field("path", &self.database.path).finish()
    }
}

#[async_trait]
impl PlaneStore for SqlitePlane {
    async fn read(&self, kind: DocumentKind, id: &str) -> Result<Option<Document>, StoreError> {
        let id = id.to_owned();
        self.run_step(StepDurability::ReadOnly, move |tx, now| {
            statements::read(tx, kind, &id, now).map_err(store_error)
        })
        .await
    }

    async fn write(&self, write: &WriteRequest) -> Result<WriteResponse, StoreError> {
        let write = write.clone();
        self.run_step(StepDurability::Synced, move |tx, now| statements::write(tx, &write, now)).await
    }

    async fn page(&self, query: &DocumentQuery) -> Result<DocumentPage, StoreError> {
        let query = query.clone();
        self.run_step(StepDurability::ReadOnly, move |tx, now| {
            statements::page(tx, &query, now).map_err(store_error)
        })
        .await
    }

    async fn count(&self, query: &DocumentQuery) -> Result<u64, StoreError> {
        let query = query.clone();
        self.run_step(StepDurability::ReadOnly, move |tx, _| {
            statements::count(tx, &query).map_err(store_error)
        })
        .await
    }

    async fn find_id_by_key(
        &self,
        kind: DocumentKind,
        key: &DocumentKey,
    ) -> Result<Option<String>, StoreError> {
        let key = key.clone();
        self.run_step(StepDurability::ReadOnly, move |tx, _| {
            statements::find_id_by_key(tx, kind, &key).map_err(store_error)
        })
        .await
    }

    async fn history(&self, kind: DocumentKind, id: &str) -> Result<Vec<DocumentEvent>, StoreError> {
        let id = id.to_owned();
        self.run_step(StepDurability::ReadOnly, move |tx, _| {
            statements::history(tx, kind, &id).map_err(store_error)
        })
        .await
    }

    async fn receive(
        &self,
        queue: Queue,
        limit: usize,
        visible: Duration,
    ) -> Result<Vec<Delivery>, StoreError> {
        // A read needs no write lock, and most polls find nothing.
        let some = self
            .run_step(StepDurability::ReadOnly, move |tx, now| {
                statements::has_due_message(tx, queue, now).map_err(store_error)
            })
            .await?;
        if !some {
            return Ok(Vec::new());
        }
        self.run_step(StepDurability::NotSynced, move |tx, now| {
            statements::receive(tx, queue, limit, visible, now).map_err(store_error)
        })
        .await
    }

    async fn send(&self, message: &Message) -> Result<bool, StoreError> {
        let mail = message.clone();
        self.run_step(StepDurability::Synced, move |tx, now| {
            statements::send(tx, &mail, now).map_err(store_error)
        })
        .await
    }

    async fn settle(&self, taken: &Delivery, settle: Disposition) -> Result<bool, StoreError> {
        let taken = taken.clone();
        self.run_step(StepDurability::NotSynced, move |tx, now| {
            statements::settle(tx, &taken, settle, now).map_err(store_error)
        })
        .await
    }

    async fn purge(
        &self,
        kind: DocumentKind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let states = states.to_vec();
        self.run_step(StepDurability::Synced, move |tx, now| {
            statements::purge(tx, kind, &states, keep, limit, now)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Message, Revision};
    use super::*;

    /// A store that counts its disk syncs; during each sync another connection takes the write lock.
    fn store_with_counted_syncs(folder: &Path) -> (SqlitePlane, Arc<Mutex<usize>>) {
        let path = folder.join("plane.db");
        let store = SqlitePlane::open(&path).unwrap();
        let inner = Arc::into_inner(store.database).unwrap();
        let (waits, other) = (Arc::<Mutex<usize>>::default(), path.clone());
        let count = Arc::clone(&waits);
        let disk = LogSync::with_sync(move || {
            *count.lock().unwrap() += 1;
            let other = Connection::open(&other).unwrap();
            other.busy_timeout(Duration::ZERO).unwrap();
            other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
            Ok(())
        });
        let db = inner.db.into_inner().unwrap();
        (SqlitePlane::from_parts(path, inner.clock, db, disk), waits)
    }

    fn new_job_write(id: &str) -> WriteRequest {
        WriteRequest {
            id: format!("write-{id}"),
            revision: Revision {
                kind: DocumentKind::Job,
                id: id.into(),
                state: "PENDING",
                due_in: None,
                index_key: "topic".into(),
                owner: String::new(),
                key: None,
                body: "{}".into(),
                event: "{}".into(),
            },
            expected_version: None,
            allowed_states: Vec::new(),
            quota: None,
            fence: None,
            new_documents: Vec::new(),
            messages: vec![Message {
                queue: Queue::Jobs,
                id: format!("mail-{id}"),
                document_id: id.into(),
                body: "{}".into(),
                due_in: Duration::ZERO,
            }],
            only_due_time: false,
        }
    }

    #[tokio::test]
    async fn responses_wait_for_the_disk_without_the_write_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (store, waits) = store_with_counted_syncs(folder.path());
        let waited = || std::mem::take(&mut *waits.lock().unwrap());
        store.write(&new_job_write("a")).await.unwrap();
        assert_eq!(waited(), 1, "a new job");
        let again = WriteRequest { id: "another".into(), ..new_job_write("a") };
        assert!(matches!(store.write(&again).await.unwrap(), WriteResponse::Refused(_)));
        assert_eq!(waited(), 1, "a refusal tells of what another has written");
        store.send(&new_job_write("b").messages[0]).await.unwrap();
        assert_eq!(waited(), 1, "mail by itself");
        let taken = store.receive(Queue::Jobs, 1, Duration::from_secs(9)).await.unwrap();
        store.settle(&taken[0], Disposition::Ack).await.unwrap();
        assert_eq!(waited(), 0, "mail that was lost comes again");
        store.read(DocumentKind::Job, "a").await.unwrap();
        assert_eq!(waited(), 0, "looking");
    }

    #[test]
    fn several_processes_may_create_the_file_at_once() {
        for round in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("plane.db");
            let start = std::sync::Barrier::new(4);
            // Each connection has its own locks on the file, like a process of its own.
            std::thread::scope(|threads| {
                for _ in 0..4 {
                    threads.spawn(|| {
                        start.wait();
                        if let Err(error) = SqlitePlane::open(&path) {
                            panic!("round {round}: {error}");
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_commit_itself_does_not_sync() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqlitePlane::open(folder.path().join("plane.db")).unwrap();
        let db = store.database.db.lock().unwrap();
        let mode: i64 = db.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(mode, 1, "NORMAL: FULL would wait under the write lock");
    }
}
