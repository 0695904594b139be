//! The embedded store: several replicas on one host share one SQLite file, beside the locks' own.
//!
//! Its own file, because SQLite has one writer a file: a burst of job writes must not hold up the renewal of locks.
//! Each step is one transaction that takes the write lock before it reads (`BEGIN IMMEDIATE`). Nothing but its statements
//! is done under that lock: the disk is waited for afterwards.

mod disk;
mod schema;
mod step;

use std::fmt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::store::{Cause, Failure};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use disk::Disk;

use super::memory::millis;
use super::{Doc, Event, Kind, Mail, PlaneStore, Query, Queue, Settle, Taken, Write, Written};

/// How long a step waits for other processes' steps.
const BUSY: Duration = Duration::from_secs(5);

/// A plane store in one SQLite file.
pub struct SqlitePlane {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    clock: SharedClock,
    db: Mutex<Connection>,
    disk: Disk,
}

/// What a step needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Looks only.
    Look,
    /// Changes what a power cut may take back, because it would only be done again: mail comes until it is acknowledged.
    Passing,
    /// Is answered when it is on the disk. So is a refusal: it tells of something that must be there then.
    Lasting,
}

impl SqlitePlane {
    /// Opens the file, making it and its tables if need be.
    ///
    /// # Errors
    /// It cannot be made or written, or it is not a plane's.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Failure> {
        Self::with_clock(path, BootClock::shared())
    }

    /// Opens the file with another clock. All processes that share it need one that shows the same wall time.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_clock(path: impl AsRef<Path>, clock: SharedClock) -> Result<Self, Failure> {
        let path = path.as_ref().to_path_buf();
        create(&path)?;
        let mut db = Connection::open(&path).map_err(failure)?;
        db.busy_handler(Some(wait)).map_err(failure)?;
        db.set_prepared_statement_cache_capacity(64);
        schema::ensure(&mut db)?;
        let disk = Disk::of(&db)?;
        Ok(Self::on(path, clock, db, disk))
    }

    fn on(path: PathBuf, clock: SharedClock, db: Connection, disk: Disk) -> Self {
        let inner = Inner {
            path,
            clock,
            db: Mutex::new(db),
            disk,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Runs one step on a thread that may block. Nothing has taken effect before the commit, so every failure before
    /// it is definite.
    async fn step<T, F>(&self, kind: Step, work: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, u64) -> Result<T, Failure> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let step = move || {
            let mut db = inner.db.lock().unwrap_or_else(PoisonError::into_inner);
            let behaviour = match kind {
                Step::Look => TransactionBehavior::Deferred,
                Step::Passing | Step::Lasting => TransactionBehavior::Immediate,
            };
            let tx = db.transaction_with_behavior(behaviour).map_err(failure)?;
            // Read once the write lock is held: a step that waited must not go by a moment that is long past.
            let now = millis(inner.clock.wall());
            let out = work(&tx, now)?;
            tx.commit().map_err(|error| match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy) => failure(error),
                _ => Failure::unknown(Cause::Unreachable, "the commit did not answer clearly")
                    .with_source(error),
            })?;
            if kind == Step::Lasting {
                let step = inner.disk.handed();
                drop(db);
                inner.disk.wait(step)?;
            }
            Ok(out)
        };
        match tokio::task::spawn_blocking(step).await {
            Ok(out) => out,
            Err(_) => Err(Failure::unknown(
                Cause::Corrupt,
                "the plane store's code panicked",
            )),
        }
    }
}

/// SQLite's own busy handler backs off to 100 ms, far longer than any step here takes.
#[allow(clippy::disallowed_methods)]
fn wait(tries: i32) -> bool {
    let pause = Duration::from_micros(200 << (tries / 4).clamp(0, 4));
    std::thread::sleep(pause);
    // The sum of the pauses: 3.2 ms each after the first sixteen.
    tries < i32::try_from(BUSY.as_millis() * 10 / 32).unwrap_or(i32::MAX)
}

/// What people pay to run is their own business: only the owner may read it.
fn create(path: &Path) -> Result<(), Failure> {
    let refuse = |error: std::io::Error| {
        Failure::not_done(
            Cause::Misconfigured,
            format!("cannot make {}: {error}", path.display()),
        )
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(refuse)?;
    }
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(refuse)
}

/// Inside a transaction nothing has taken effect yet, so this is always definite.
fn failure(error: rusqlite::Error) -> Failure {
    let code = error.sqlite_error_code().unwrap_or(ErrorCode::Unknown);
    let (cause, what) = match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            Cause::Overloaded,
            "other processes kept the plane's database busy",
        ),
        ErrorCode::ReadOnly => (Cause::ReadOnly, "the plane's database cannot be written"),
        ErrorCode::PermissionDenied => (Cause::Denied, "no right to the plane's database"),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            (Cause::Corrupt, "the plane's database is damaged")
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => {
            (Cause::Unreachable, "the plane's database cannot be reached")
        }
        ErrorCode::DiskFull | ErrorCode::OutOfMemory => (Cause::Overloaded, "there is no room left"),
        _ => (Cause::Misconfigured, "the plane's database refused a statement"),
    };
    Failure::not_done(cause, format!("{what}: {error}")).with_source(error)
}

impl fmt::Debug for SqlitePlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlitePlane")
            .field("path", &self.inner.path)
            .finish()
    }
}

#[async_trait]
impl PlaneStore for SqlitePlane {
    async fn read(&self, kind: Kind, id: &str) -> Result<Option<Doc>, Failure> {
        let id = id.to_owned();
        self.step(Step::Look, move |tx, now| {
            step::read(tx, kind, &id, now).map_err(failure)
        })
        .await
    }

    async fn write(&self, write: &Write) -> Result<Written, Failure> {
        let write = write.clone();
        self.step(Step::Lasting, move |tx, now| step::write(tx, &write, now))
            .await
    }

    async fn list(&self, query: &Query) -> Result<Vec<Doc>, Failure> {
        let query = query.clone();
        self.step(Step::Look, move |tx, now| {
            step::list(tx, &query, now).map_err(failure)
        })
        .await
    }

    async fn count(&self, query: &Query) -> Result<u64, Failure> {
        let query = query.clone();
        self.step(Step::Look, move |tx, _| step::count(tx, &query).map_err(failure))
            .await
    }

    async fn by_key(&self, kind: Kind, key: &str) -> Result<Option<String>, Failure> {
        let key = key.to_owned();
        self.step(Step::Look, move |tx, _| {
            step::by_key(tx, kind, &key).map_err(failure)
        })
        .await
    }

    async fn history(&self, kind: Kind, id: &str) -> Result<Vec<Event>, Failure> {
        let id = id.to_owned();
        self.step(Step::Look, move |tx, _| {
            step::history(tx, kind, &id).map_err(failure)
        })
        .await
    }

    async fn take(&self, queue: Queue, limit: usize, visible: Duration) -> Result<Vec<Taken>, Failure> {
        // Looking costs no write lock, and mostly there is nothing.
        let some = self
            .step(Step::Look, move |tx, now| {
                step::waiting(tx, queue, now).map_err(failure)
            })
            .await?;
        if !some {
            return Ok(Vec::new());
        }
        self.step(Step::Passing, move |tx, now| {
            step::take(tx, queue, limit, visible, now).map_err(failure)
        })
        .await
    }

    async fn send(&self, mail: &Mail) -> Result<bool, Failure> {
        let mail = mail.clone();
        self.step(Step::Lasting, move |tx, now| {
            step::send(tx, &mail, now).map_err(failure)
        })
        .await
    }

    async fn settle(&self, taken: &Taken, settle: Settle) -> Result<bool, Failure> {
        let taken = taken.clone();
        self.step(Step::Passing, move |tx, now| {
            step::settle(tx, &taken, settle, now).map_err(failure)
        })
        .await
    }

    async fn purge(
        &self,
        kind: Kind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, Failure> {
        let states = states.to_vec();
        self.step(Step::Lasting, move |tx, now| {
            step::purge(tx, kind, &states, keep, limit, now)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Mail};
    use super::*;

    /// A store whose waits for the disk are counted, and during each of which someone else writes.
    fn counted(folder: &Path) -> (SqlitePlane, Arc<Mutex<usize>>) {
        let path = folder.join("plane.db");
        let store = SqlitePlane::open(&path).unwrap();
        let inner = Arc::into_inner(store.inner).unwrap();
        let (waits, other) = (Arc::<Mutex<usize>>::default(), path.clone());
        let count = Arc::clone(&waits);
        let disk = Disk::with(move || {
            *count.lock().unwrap() += 1;
            let other = Connection::open(&other).unwrap();
            other.busy_timeout(Duration::ZERO).unwrap();
            other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
            Ok(())
        });
        let db = inner.db.into_inner().unwrap();
        (SqlitePlane::on(path, inner.clock, db, disk), waits)
    }

    fn new(id: &str) -> Write {
        Write {
            id: format!("write-{id}"),
            entry: Entry {
                kind: Kind::Job,
                id: id.into(),
                state: "PENDING",
                due_in: None,
                shelf: "topic".into(),
                key: None,
                body: "{}".into(),
                event: "{}".into(),
            },
            expect: None,
            from: Vec::new(),
            fence: None,
            also: Vec::new(),
            send: vec![Mail {
                queue: Queue::Jobs,
                id: format!("mail-{id}"),
                to: id.into(),
                body: "{}".into(),
                due_in: Duration::ZERO,
            }],
        }
    }

    #[tokio::test]
    async fn what_is_answered_is_on_the_disk_and_nobody_waits_for_the_disk_under_the_write_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (store, waits) = counted(folder.path());
        let waited = || std::mem::take(&mut *waits.lock().unwrap());
        store.write(&new("a")).await.unwrap();
        assert_eq!(waited(), 1, "a new job");
        let again = Write {
            id: "another".into(),
            ..new("a")
        };
        assert!(matches!(store.write(&again).await.unwrap(), Written::Refused(_)));
        assert_eq!(waited(), 1, "a refusal tells of what another has written");
        store.send(&new("b").send[0]).await.unwrap();
        assert_eq!(waited(), 1, "mail by itself");
        let taken = store.take(Queue::Jobs, 1, Duration::from_secs(9)).await.unwrap();
        store.settle(&taken[0], Settle::Ack).await.unwrap();
        assert_eq!(waited(), 0, "mail that was lost comes again");
        store.read(Kind::Job, "a").await.unwrap();
        assert_eq!(waited(), 0, "looking");
    }

    #[test]
    fn a_commit_itself_waits_for_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqlitePlane::open(folder.path().join("plane.db")).unwrap();
        let db = store.inner.db.lock().unwrap();
        let mode: i64 = db
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .unwrap();
        assert_eq!(mode, 1, "NORMAL: FULL would wait under the write lock");
    }
}
