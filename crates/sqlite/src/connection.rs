//! One connection to the file, and the one way in which a step runs on it.
//!
//! A step is a transaction that takes the write lock before it reads (`BEGIN IMMEDIATE`): SQLite's deferred
//! transactions fail half-way if someone else wrote after their first read. The clock is read once the lock
//! is held, so that a step which waited does not judge leases by a moment that is long past.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::clock::Moment;
use leasehold_core::store::{Cause, Failure};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::blocker::Blocker;
use crate::error::{self, Halt, Stage};
use crate::options::{Durability, SqliteOptions};
use crate::patience::Patience;
use crate::step::Step;
use crate::transaction::{Kind, Transaction};
use crate::{purge, schema};

/// What the log is cut down to once it has been carried over: four times what is usual.
const LONGEST_LOG: i64 = 64 << 20;

/// How often one connection looks up who is in its way.
const BLAME_EVERY: Duration = Duration::from_secs(1);

/// What all connections of one store value share.
#[derive(Debug)]
pub(crate) struct Setting {
    /// As the caller gave them, but with the file's true path.
    pub(crate) options: SqliteOptions,
    /// The boot all leases of this value belong to.
    pub(crate) boot: String,
}

/// The file as the kernel knows it: another one under the same path is another truth.
type Inode = (u64, u64);

/// A connection that was found fit for use.
pub(crate) struct Session {
    /// Used by one thread only, which owns this session.
    db: Connection,
    /// How to open the file anew, should that be needed.
    setting: Arc<Setting>,
    /// Set at the beginning of every step, read by the busy handler.
    patience: Arc<Patience>,
    /// What was opened.
    inode: Inode,
    /// Steps since the last clean-up.
    since_purge: u32,
    /// Who was in the way when that was last looked up.
    blamed: RefCell<Option<(Moment, Option<Blocker>)>>,
    /// Those who were told to wait: their next ask may be answered by a look.
    pub(crate) waiting: Waiting,
}

/// Waiters of this session, by the hash of their token. Bounded: whoever is not in it is answered in full.
#[derive(Debug, Default)]
pub(crate) struct Waiting(HashSet<String>);

impl Waiting {
    const MOST: usize = 16 * 1024;

    /// Was it told to wait?
    pub(crate) fn has(&self, owner: &str) -> bool {
        self.0.contains(owner)
    }

    /// It was told to wait, or no longer.
    pub(crate) fn set(&mut self, owner: &str, waits: bool) {
        if !waits {
            self.0.remove(owner);
        } else if self.0.len() < Self::MOST {
            self.0.insert(owner.to_owned());
        }
    }
}

impl Session {
    /// Opens the file, making it and its tables if need be.
    pub(crate) fn open(setting: &Arc<Setting>) -> Result<Self, Failure> {
        let options = &setting.options;
        create(options)?;
        let patience = Patience::new(Arc::clone(&options.clock), Arc::clone(&options.random));
        patience.allow(options.busy_timeout);
        let mut tries = 0;
        loop {
            match Self::prepare(setting, &patience) {
                // SQLite does not wait by itself where it fears a deadlock: while the journal mode changes
                // and while the last user of a file closes it.
                Err(Halt::Sqlite(error)) if is_busy(&error) && patience.wait(tries) => tries += 1,
                Err(Halt::Sqlite(error)) if is_busy(&error) => {
                    return Err(error::busy(error, Blocker::of(&options.path).as_ref()));
                }
                Err(halt) => return Err(halt.judge(Stage::Open)),
                Ok(session) => return Ok(session),
            }
        }
    }

    /// One attempt to get a connection fit for use. Everything in it can be repeated: another process may
    /// have done any part of it meanwhile.
    fn prepare(setting: &Arc<Setting>, patience: &Arc<Patience>) -> Result<Self, Halt> {
        let options = &setting.options;
        let inode = inode(&options.path)?;
        // Without CREATE: the file is ours to make, with permissions of our choice. Without URI: a path is a
        // path.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&options.path, flags)?;
        let waiting = Arc::clone(patience);
        db.busy_handler(Some(move |tries: i32| {
            waiting.wait(u32::try_from(tries).unwrap_or(0))
        }))?;
        if db.is_readonly("main")? {
            return Err(Failure::not_done(
                Cause::ReadOnly,
                format!(
                    "{} cannot be written: check its permissions and the mount",
                    options.path.display()
                ),
            )
            .into());
        }
        db.set_prepared_statement_cache_capacity(32);
        // Otherwise SQLite compiles a prepared statement anew for many a new value, to plan for that one.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        schema::ensure(&db)?;
        db.pragma_update(None, "synchronous", options.durability.pragma())?;
        // Four times as long a log as usual before it is carried over into the file: that is when the disk is
        // waited for.
        db.pragma_update_and_check(None, "wal_autocheckpoint", 4000, |_| Ok(()))?;
        // After a burst the log would keep its largest size for ever. Many writers make it a little longer than
        // the above each time, so the limit is far from that: cutting it off, and making it longer again, are
        // done by someone who holds the write lock, and wait for the filesystem's own writing.
        db.pragma_update_and_check(None, "journal_size_limit", LONGEST_LOG, |_| Ok(()))?;
        schema::adopt(&db, &setting.boot)?;
        Ok(Self {
            db,
            setting: Arc::clone(setting),
            patience: Arc::clone(patience),
            inode,
            since_purge: purge::EVERY,
            blamed: RefCell::new(None),
            waiting: Waiting::default(),
        })
    }

    /// Runs one step that may change something, all or nothing.
    pub(crate) fn write<T, F>(&mut self, limit: Duration, work: F) -> Result<T, Failure>
    where
        F: FnOnce(&Step<'_>) -> Result<T, Halt>,
    {
        self.refresh()?;
        self.patience
            .allow(in_time(limit).min(self.setting.options.busy_timeout));
        let clean = self.since_purge >= purge::EVERY;
        let (out, to_disk) = self.attempt(Kind::Write, |step| {
            let out = work(step)?;
            if clean {
                purge::run(step)?;
            }
            Ok((out, step.must_reach_disk()))
        })?;
        self.since_purge = if clean { 0 } else { self.since_purge + 1 };
        if to_disk && self.setting.options.durability == Durability::Normal {
            self.sync_log()?;
        }
        Ok(out)
    }

    /// Runs one step that only looks. In WAL mode it neither waits for writers nor holds them up.
    pub(crate) fn read<T, F>(&mut self, limit: Duration, work: F) -> Result<T, Failure>
    where
        F: FnOnce(&Step<'_>) -> Result<T, Halt>,
    {
        self.refresh()?;
        self.patience
            .allow(in_time(limit).min(self.setting.options.busy_timeout));
        self.attempt(Kind::Read, work)
    }

    /// The one place where a transaction begins and ends, and so the one that knows which half of the table
    /// of errors applies. Every step first makes sure that the file is still this boot's.
    fn attempt<T, F>(&self, kind: Kind, work: F) -> Result<T, Failure>
    where
        F: FnOnce(&Step<'_>) -> Result<T, Halt>,
    {
        let setting = Arc::clone(&self.setting);
        let transaction = Transaction::begin(&self.db, kind).map_err(|error| self.not_begun(error))?;
        let clock = &setting.options.clock;
        let step = Step::new(&self.db, clock.now(), clock.wall());
        // Dropping the transaction on the way out rolls it back.
        let out = schema::check_boot(&step, &setting.boot)
            .and_then(|()| work(&step))
            .map_err(|halt| halt.judge(Stage::Open))?;
        transaction
            .commit()
            .map_err(|error| error::judge(error, Stage::Commit))?;
        Ok(out)
    }

    /// A step that could not begin. If others were in its way it says who. That is not looked up at every try, because the list of locks is the
    /// whole host's, and nobody can lock anything while it is read.
    fn not_begun(&self, error: rusqlite::Error) -> Failure {
        if !is_busy(&error) {
            return error::judge(error, Stage::Open);
        }
        let now = self.setting.options.clock.now();
        let mut blamed = self.blamed.borrow_mut();
        if blamed
            .as_ref()
            .is_none_or(|(at, _)| now.since(*at) >= BLAME_EVERY)
        {
            *blamed = Some((now, Blocker::of(&self.setting.options.path)));
        }
        error::busy(error, blamed.as_ref().and_then(|(_, blocker)| blocker.as_ref()))
    }

    /// Opens the file anew if it was removed or replaced: who writes into a removed file is alone with it.
    fn refresh(&mut self) -> Result<(), Failure> {
        if inode(&self.setting.options.path).is_ok_and(|found| found == self.inode) {
            return Ok(());
        }
        tracing::warn!(
            path = %self.setting.options.path.display(),
            "the lock database was removed or replaced: opening it anew"
        );
        *self = Self::open(&Arc::clone(&self.setting))?;
        Ok(())
    }

    /// Waits until the log, and with it the last step, is on the disk. SQLite locks other files than its log,
    /// so opening and closing that one here disturbs no lock.
    fn sync_log(&self) -> Result<(), Failure> {
        let path = &self.setting.options.path;
        let synced = File::open(beside(path, "-wal"))
            .and_then(|log| log.sync_data())
            .and_then(|()| File::open(folder_of(path))?.sync_all());
        synced.map_err(|error| {
            Failure::unknown(
                Cause::Unreachable,
                "the step was made but the disk did not confirm it: check the disk and the kernel's log",
            )
            .with_source(error)
        })
    }
}

/// How long a step may wait so that its answer, which is definite and names who is in the way, comes before its asker has stopped listening
/// and must take it for unknown.
fn in_time(limit: Duration) -> Duration {
    limit - (limit / 20).min(Duration::from_millis(100))
}

/// The file's path with something appended to its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The folder a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the folder of a file.
pub(crate) fn create_folder(path: &Path) -> Result<(), Failure> {
    let folder = folder_of(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| error::preparing(error, format_args!("cannot make the folder {}", folder.display())))
}

/// Makes an empty file that only its owner can read, unless there is one.
///
/// It is made under another name first: closing any descriptor of a database drops all the locks this process
/// has on it, so the file must not be opened here once others can know its name.
pub(crate) fn create(options: &SqliteOptions) -> Result<(), Failure> {
    let path = &options.path;
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let fresh = beside(path, &format!(".new-{:016x}", options.random.bits()));
    let make = || -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        let moved = match rustix::fs::renameat_with(CWD, &fresh, CWD, path, RenameFlags::NOREPLACE) {
            // Some filesystems cannot rename without replacing; a link never replaces.
            Err(Errno::INVAL) => fs::hard_link(&fresh, path),
            other => other.map_err(io::Error::from),
        };
        // It is gone if the rename worked; in all other cases it is of no use any more.
        drop(fs::remove_file(&fresh));
        match moved {
            // Another process was faster: its file is as good as ours.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    };
    make()
        .map_err(|error| error::preparing(error, format_args!("cannot make the database {}", path.display())))
}

/// Which file is under this path now, if it is one.
fn inode(path: &Path) -> Result<Inode, Failure> {
    let found = fs::metadata(path).map_err(|error| {
        error::preparing(error, format_args!("cannot find the database {}", path.display()))
    })?;
    if found.is_file() {
        Ok((found.dev(), found.ino()))
    } else {
        Err(Failure::not_done(
            Cause::Misconfigured,
            format!("{} is not a file: name the database file itself", path.display()),
        ))
    }
}

/// Others were faster, and will be done in a moment.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The wall clock in microseconds; 0 before 1970.
pub(crate) fn micros(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// A moment as the database keeps it.
pub(crate) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}
