//! One connection to the file, and the only way to run a step on it.
//!
//! A step is a transaction that takes the write lock before it reads (`BEGIN IMMEDIATE`).
//! SQLite's deferred transactions fail half-way if another process wrote after their first
//! read. The clock is read after the lock is taken, so that a step which waited does not
//! judge leases by an old time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::clock::Moment;
use leasehold_core::rng::Random;
use leasehold_core::store::{StoreError, StoreErrorKind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::busy_timeout::BusyTimeout;
use crate::error::{self, StepError, TransactionPhase};
use crate::options::{Durability, SqliteOptions};
use crate::step::Step;
use crate::transaction::{Transaction, TransactionKind};
use crate::writer_watch::BlockingWriter;
use crate::{document_rows, purge, schema};

/// Size to which the log is truncated after a checkpoint: four times the usual one.
const WAL_SIZE_LIMIT_BYTES: i64 = 64 << 20;

/// Minimum interval between two lookups of the process that holds the write lock.
const WRITER_LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// Shared by all connections of one store value.
#[derive(Debug)]
pub(crate) struct StoreConfig {
    /// The caller's options, with the file's canonical path.
    pub(crate) options: SqliteOptions,
    /// Boot to which all leases of this store value belong.
    pub(crate) boot: String,
}

/// Device and inode: a new file under the same path has other leases.
type FileId = (u64, u64);

/// A connection that has passed all checks.
pub(crate) struct Session {
    /// Used only by the thread that owns this session.
    db: Connection,
    /// Needed to open the file again.
    config: Arc<StoreConfig>,
    /// Set at the start of every step, read by the busy handler.
    busy_timeout: Arc<BusyTimeout>,
    /// Identity of the file that was opened.
    file_id: FileId,
    /// Steps since the last purge.
    steps_since_purge: u32,
    /// Result and time of the last lookup of the write lock's holder.
    last_writer: RefCell<Option<(Moment, Option<BlockingWriter>)>>,
    /// Waiters whose next poll may be answered by a read.
    pub(crate) known_waiters: KnownWaiters,
}

/// Waiters of this session, by owner hash, and when their queue entries expire. Bounded; a waiter that
/// is not in it gets a full acquire.
#[derive(Debug, Default)]
pub(crate) struct KnownWaiters(HashMap<String, Moment>);

impl KnownWaiters {
    const MAX_KNOWN_WAITERS: usize = 16 * 1024;

    pub(crate) fn contains(&self, owner: &str) -> bool {
        self.0.contains_key(owner)
    }

    /// Records until when the last response put this owner into the queue; `None` if it did not.
    pub(crate) fn set_waiting(&mut self, owner: &str, until: Option<Moment>) {
        match until {
            None => {
                self.0.remove(owner);
            }
            Some(until) if self.0.len() < Self::MAX_KNOWN_WAITERS || self.contains(owner) => {
                self.0.insert(owner.to_owned(), until);
            }
            Some(_) => {}
        }
    }

    /// Drops the waiters that never came back. They would keep others out for good.
    fn drop_expired(&mut self, now: Moment) {
        self.0.retain(|_, until| now < *until);
    }
}

impl Session {
    /// Opens the file. Creates the file and its tables if they are missing.
    pub(crate) fn open(setting: &Arc<StoreConfig>) -> Result<Self, StoreError> {
        let options = &setting.options;
        create_file(&options.path, &*options.random)?;
        let timeout = BusyTimeout::new(Arc::clone(&options.clock), Arc::clone(&options.random));
        timeout.start_step(options.busy_timeout);
        let mut tries = 0;
        loop {
            match Self::prepare(setting, &timeout) {
                // Where SQLite fears a deadlock, it returns "busy" without calling
                // the busy handler. That is while the journal mode changes, and while
                // the last user closes the file.
                Err(StepError::Sqlite(error)) if is_busy(&error) && timeout.wait_before_retry(tries) => {
                    tries += 1
                }
                Err(StepError::Sqlite(error)) if is_busy(&error) => {
                    return Err(error::busy_error(error, BlockingWriter::find(&options.path).as_ref()));
                }
                Err(halt) => return Err(halt.into_store_error(TransactionPhase::Open)),
                Ok(session) => return Ok(session),
            }
        }
    }

    /// One attempt to open and check the file. Every part can be repeated, since another
    /// process may do the same meanwhile.
    fn prepare(setting: &Arc<StoreConfig>, timeout: &Arc<BusyTimeout>) -> Result<Self, StepError> {
        let options = &setting.options;
        let inode = file_id(&options.path)?;
        // Without CREATE: `create_file` makes the file, with its own permissions. Without URI: a
        // `?` in a path is just a character.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&options.path, flags)?;
        let waiting = Arc::clone(timeout);
        db.busy_handler(Some(move |tries: i32| {
            waiting.wait_before_retry(u32::try_from(tries).unwrap_or(0))
        }))?;
        if db.is_readonly("main")? {
            return Err(StoreError::not_done(
                StoreErrorKind::ReadOnly,
                format!("{} cannot be written: check its permissions and the mount", options.path.display()),
            )
            .into());
        }
        db.set_prepared_statement_cache_capacity(32);
        // Keeps query plans stable. Otherwise SQLite re-prepares a statement
        // for many new parameter values.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        schema::ensure_tables(&db)?;
        db.pragma_update(None, "synchronous", options.durability.pragma())?;
        // Four times the default. Each checkpoint waits for the disk, so rarer
        // checkpoints mean fewer waits.
        db.pragma_update_and_check(None, "wal_autocheckpoint", 4000, |_| Ok(()))?;
        // Without a limit, the log keeps its largest size after a burst. The limit is far above the
        // checkpoint size, which many writers exceed a little each time. Truncating and growing the
        // log happens under the write lock and waits for the filesystem.
        db.pragma_update_and_check(None, "journal_size_limit", WAL_SIZE_LIMIT_BYTES, |_| Ok(()))?;
        schema::adopt_boot(&db, &setting.boot)?;
        document_rows::start_clock(&db, &setting.boot, options.clock.now(), options.clock.wall())?;
        Ok(Self {
            db,
            config: Arc::clone(setting),
            busy_timeout: Arc::clone(timeout),
            file_id: inode,
            steps_since_purge: purge::PURGE_INTERVAL_STEPS,
            last_writer: RefCell::new(None),
            known_waiters: KnownWaiters::default(),
        })
    }

    /// The current moment by the store's clock.
    pub(crate) fn now(&self) -> Moment {
        self.config.options.clock.now()
    }

    /// Runs one step that may write. Its changes are applied completely or not at all.
    pub(crate) fn write<T, F>(&mut self, limit: Duration, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Step<'_>) -> Result<T, StepError>,
    {
        self.reopen_if_replaced()?;
        self.busy_timeout.start_step(lock_wait_limit(limit).min(self.config.options.busy_timeout));
        let clean = self.steps_since_purge >= purge::PURGE_INTERVAL_STEPS;
        let (out, to_disk) = self.run_transaction(TransactionKind::Write, |step| {
            let out = work(step)?;
            if clean {
                // In the caller's transaction: a purge of its own would take
                // the write lock once more.
                purge::run(step)?;
            }
            Ok((out, step.is_sync_required()))
        })?;
        self.steps_since_purge = if clean { 0 } else { self.steps_since_purge + 1 };
        if clean {
            self.known_waiters.drop_expired(self.now());
        }
        if to_disk && self.config.options.durability == Durability::Normal {
            self.sync_log()?;
        }
        Ok(out)
    }

    /// Runs one step that only reads. In WAL mode it neither waits for writers nor blocks them.
    pub(crate) fn read<T, F>(&mut self, limit: Duration, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Step<'_>) -> Result<T, StepError>,
    {
        self.reopen_if_replaced()?;
        self.busy_timeout.start_step(lock_wait_limit(limit).min(self.config.options.busy_timeout));
        self.run_transaction(TransactionKind::Read, work)
    }

    /// Begins and ends every transaction, so it knows whether an error came
    /// before or at the `COMMIT`.
    fn run_transaction<T, F>(&self, kind: TransactionKind, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Step<'_>) -> Result<T, StepError>,
    {
        let setting = Arc::clone(&self.config);
        let transaction = Transaction::begin(&self.db, kind).map_err(|error| self.begin_error(error))?;
        let clock = &setting.options.clock;
        let step = Step::new(&self.db, clock.now(), clock.wall());
        // An early return drops the transaction, which rolls it back.
        // In every step: another host may have adopted the file since it was opened.
        let out = schema::check_boot(&step, &setting.boot)
            .and_then(|()| work(&step))
            .map_err(|halt| halt.into_store_error(TransactionPhase::Open))?;
        transaction.commit().map_err(|error| error::classify(error, TransactionPhase::Commit))?;
        Ok(out)
    }

    /// Turns an error of `BEGIN` into a store error; names the process that holds the write lock.
    fn begin_error(&self, error: rusqlite::Error) -> StoreError {
        if !is_busy(&error) {
            return error::classify(error, TransactionPhase::Open);
        }
        let now = self.config.options.clock.now();
        // Rate-limited: the kernel's lock list covers the whole host, and no process can
        // lock anything while it is read.
        let mut blamed = self.last_writer.borrow_mut();
        if blamed.as_ref().is_none_or(|(at, _)| now.since(*at) >= WRITER_LOOKUP_INTERVAL) {
            *blamed = Some((now, BlockingWriter::find(&self.config.options.path)));
        }
        error::busy_error(error, blamed.as_ref().and_then(|(_, blocker)| blocker.as_ref()))
    }

    /// Opens the file again if it was removed or replaced.
    fn reopen_if_replaced(&mut self) -> Result<(), StoreError> {
        // A removed file stays usable through its descriptor, but no other
        // process sees what is written there.
        if file_id(&self.config.options.path).is_ok_and(|found| found == self.file_id) {
            return Ok(());
        }
        tracing::warn!(
            path = %self.config.options.path.display(),
            "the lock database was removed or replaced: reopening it"
        );
        *self = Self::open(&Arc::clone(&self.config))?;
        Ok(())
    }

    /// Waits until the log, and with it the last step, is on the disk.
    fn sync_log(&self) -> Result<(), StoreError> {
        let path = &self.config.options.path;
        // Closing a file drops this process's POSIX locks on it. SQLite never locks its log file,
        // so opening and closing it here is safe.
        let synced = File::open(with_suffix(path, "-wal"))
            .and_then(|log| log.sync_data())
            .and_then(|()| File::open(folder_of(path))?.sync_all());
        synced.map_err(|error| {
            StoreError::unknown(
                StoreErrorKind::Unreachable,
                "the step was made but the disk did not confirm it: check the disk and the kernel's log",
            )
            .with_source(error)
        })
    }
}

/// How long a step may wait for the lock. Slightly less than the call's limit, so that the definite
/// response arrives before the caller times out.
fn lock_wait_limit(limit: Duration) -> Duration {
    // A caller that times out must treat the outcome as unknown, and does not
    // learn which process blocks.
    limit - (limit / 20).min(Duration::from_millis(100))
}

/// Appends a suffix to the file name of a path.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The folder of a file; `.` for a bare file name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Creates the folder of a file.
pub(crate) fn create_folder(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        error::prepare_error(error, format_args!("cannot make the folder {}", folder.display()))
    })
}

/// Creates an empty file with mode 0600, unless the file exists.
// It gets another name first: closing any descriptor of a database drops all POSIX locks of this
// process on it. So the file must not be open here once other threads can find it under its name.
pub(crate) fn create_file(path: &Path, random: &dyn Random) -> Result<(), StoreError> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let fresh = with_suffix(path, &format!(".new-{:016x}", random.bits()));
    let make = || -> io::Result<()> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        let moved = match rustix::fs::renameat_with(CWD, &fresh, CWD, path, RenameFlags::NOREPLACE) {
            // Some filesystems cannot rename without replacing. A hard link never replaces.
            Err(Errno::INVAL) => fs::hard_link(&fresh, path),
            other => other.map_err(io::Error::from),
        };
        // After a successful rename it no longer exists; in all other cases it is garbage.
        drop(fs::remove_file(&fresh));
        match moved {
            // Another process created the file first: use that one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    };
    make().map_err(|error| {
        error::prepare_error(error, format_args!("cannot make the database {}", path.display()))
    })
}

/// Identity of the file under this path; an error if it is not a regular file.
fn file_id(path: &Path) -> Result<FileId, StoreError> {
    let found = fs::metadata(path).map_err(|error| {
        error::prepare_error(error, format_args!("cannot find the database {}", path.display()))
    })?;
    if found.is_file() {
        Ok((found.dev(), found.ino()))
    } else {
        Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
            format!("{} is not a file: name the database file itself", path.display()),
        ))
    }
}

/// Whether another connection holds the lock, so that a retry may succeed.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The wall clock as microseconds since 1970; 0 before that.
pub(crate) fn unix_micros(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Converts a moment to its column value.
pub(crate) fn moment_to_nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 25 of the security review: tokens that queued and never came back filled the table.
    #[test]
    fn finding_25_waiters_that_never_came_back_are_dropped() {
        let mut known = KnownWaiters::default();
        let (now, until) = (Moment::from_nanos(1), Moment::from_nanos(2));
        for number in 0..=KnownWaiters::MAX_KNOWN_WAITERS {
            known.set_waiting(&format!("gone {number}"), Some(until));
        }
        known.set_waiting("late", Some(Moment::from_nanos(9)));
        known.drop_expired(now);
        assert!(!known.contains("late") && known.0.len() == KnownWaiters::MAX_KNOWN_WAITERS);
        known.drop_expired(until);
        assert!(known.0.is_empty());
        known.set_waiting("late", Some(Moment::from_nanos(9)));
        assert!(known.contains("late"));
    }
}
