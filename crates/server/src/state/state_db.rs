//! The daemon's own SQLite file: what it must know after a restart.
//!
//! One thread writes the file, many tasks per transaction. A caller waits for the disk only if it
//! needs the result to be durable. Another thread reads the file on a connection of its own, so that
//! a long query never delays a commit.

use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

// Bounds memory when the disk stalls. Beyond it, a task without a waiting caller is dropped and
// logged.
const MAX_QUEUED_TASKS: usize = 65_536;
// Bounds memory, and how long a query waits for those before it. Each scans some ten milliseconds at most.
pub(crate) const MAX_QUEUED_READS: usize = 64;
// Bounds how long the first caller of a transaction waits for its commit.
const MAX_TASKS_PER_TRANSACTION: usize = 512;

// Only a checkpoint or the recovery of the file makes a reader wait.
const READ_BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// A task that reads or writes the daemon's database.
pub type DatabaseTask = Box<dyn FnOnce(&Connection) + Send>;

/// The writer of the daemon's database: runs tasks one after another, in the order of submission.
pub trait DatabaseWriter: Send + Sync {
    /// Queues a task.
    ///
    /// # Errors
    /// The queue is full or the writer is gone; the task will not run.
    fn submit(&self, step: DatabaseTask) -> Result<(), WriterFull>;
}

/// The writer's queue is full, or the writer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterFull;

/// The default writer: the queue of the daemon's writer thread.
impl DatabaseWriter for SyncSender<DatabaseTask> {
    fn submit(&self, step: DatabaseTask) -> Result<(), WriterFull> {
        self.try_send(step).map_err(|_| WriterFull)
    }
}

/// A reply that is sent when its transaction has committed or failed.
type PendingReply = Box<dyn FnOnce(Result<(), String>) + Send>;

/// The daemon's database: queues tasks for its writer.
pub(crate) struct StateDb {
    writer: Arc<dyn DatabaseWriter>,
    /// The queue of the reader thread; `None` if only the writer can see the data.
    reader: Option<SyncSender<DatabaseTask>>,
    /// Replies that wait for the commit; `None` if each task commits by itself.
    pending_replies: Option<Sender<PendingReply>>,
    /// An exclusive lock on the directory: two daemons in one directory would overwrite each
    /// other's rows.
    lock: Mutex<Option<fs::File>>,
    closed: AtomicBool,
}

impl StateDb {
    /// Opens the database in this directory, or an in-memory one without a directory.
    ///
    /// # Errors
    /// The directory cannot be created or is readable by other users, or the file cannot be used.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, String> {
        let mut lock = None;
        let connection = match folder {
            Some(folder) => {
                prepare_folder(folder)?;
                lock = Some(lock_folder(folder)?);
                let path = folder.join("daemon.db");
                let opened = create_private_file(&path)
                    .and_then(|()| Connection::open(&path).map_err(|error| error.to_string()));
                opened.map_err(|why| format!("{}: cannot be used: {why}", path.display()))?
            }
            None => Connection::open_in_memory().map_err(|error| error.to_string())?,
        };
        connection
            .execute_batch(
                // NORMAL may lose the last commits at a power loss, never consistency. Leases
                // themselves live in the store, not here.
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 2000;",
            )
            .and_then(|()| prepare_tables(&connection))
            .map_err(|error| format!("the daemon's file cannot be used: {error}"))?;
        let (mut db, writer) = Self::with_connection(connection, lock);
        thread::Builder::new()
            .name("state-db".to_owned())
            .spawn(writer)
            .map_err(|error| error.to_string())?;
        if let Some(folder) = folder {
            db.reader = Some(start_reader(&folder.join("daemon.db"))?);
        }
        Ok(db)
    }

    /// A database on this connection, and the writer loop to run on a thread. Tests run the loop
    /// later, to control which tasks share a transaction.
    fn with_connection(connection: Connection, lock: Option<fs::File>) -> (Self, impl FnOnce() + Send) {
        let (steps, queue) = sync_channel(MAX_QUEUED_TASKS);
        let (reply_sender, replies) = channel();
        let db = Self::from_parts(Arc::new(steps), Some(reply_sender), lock);
        (db, move || run_writer(connection, &queue, &replies))
    }

    /// Uses an external writer that commits each task by itself.
    pub(crate) fn with_writer(writer: Arc<dyn DatabaseWriter>) -> Self {
        let db = Self::from_parts(writer, None, None);
        db.write_later(|db| {
            let _ = prepare_tables(db);
        });
        db
    }

    fn from_parts(
        writer: Arc<dyn DatabaseWriter>,
        replies: Option<Sender<PendingReply>>,
        lock: Option<fs::File>,
    ) -> Self {
        Self {
            writer,
            reader: None,
            pending_replies: replies,
            lock: Mutex::new(lock),
            closed: AtomicBool::new(false),
        }
    }

    /// Queues a task without waiting for it. Logged and dropped if the queue is full.
    pub(crate) fn write_later(&self, step: impl FnOnce(&Connection) + Send + 'static) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        if self.writer.submit(Box::new(step)).is_err() {
            tracing::error!("the daemon's file cannot keep up: a step of the history is lost");
        }
    }

    /// Waits until all queued tasks are committed, then releases the directory to the next daemon.
    pub(crate) async fn close(&self) {
        // First refuse new tasks, then flush: a later task would run beside the next daemon's
        // writes.
        self.closed.store(true, Ordering::Release);
        let _ = self.write_confirmed(|_| Ok(())).await;
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Whether no further task may be queued.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Runs a task and returns its result once the transaction has committed. The task is queued by
    /// the call itself, not when the future is first polled.
    pub(crate) fn write_confirmed<T, S>(
        &self,
        step: S,
    ) -> impl Future<Output = Result<T, String>> + Send + use<T, S>
    where
        T: Send + 'static,
        S: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        Self::submit_with_reply(&*self.writer, step, self.pending_replies.clone())
    }

    /// Runs a read that sees all tasks queued before it. Other tasks' write errors do not fail it.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let Some(reader) = &self.reader else {
            return Self::submit_read(&*self.writer, step).await;
        };
        // The reader sees only what is committed, so the tasks before this one must be.
        let _ = self.write_confirmed(|_| Ok(())).await;
        Self::submit_read(reader, step).await
    }

    /// Queues a read. It is skipped if its caller is gone when its turn comes, since it changes nothing.
    fn submit_read<T: Send + 'static>(
        queue: &dyn DatabaseWriter,
        step: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send {
        let (answer, asked) = oneshot::channel();
        let step: DatabaseTask = Box::new(move |connection| {
            if !answer.is_closed() {
                let _ = answer.send(step(connection).map_err(|error| error.to_string()));
            }
        });
        reply_of(queue.submit(step), asked)
    }

    fn submit_with_reply<T, S>(
        queue: &dyn DatabaseWriter,
        step: S,
        replies: Option<Sender<PendingReply>>,
    ) -> impl Future<Output = Result<T, String>> + Send + use<T, S>
    where
        T: Send + 'static,
        S: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, asked) = oneshot::channel();
        let step: DatabaseTask = Box::new(move |connection| {
            let done = step(connection).map_err(|error| error.to_string());
            let tell = move |committed: Result<(), String>| {
                let _ = answer.send(done.and_then(|done| committed.map(|()| done)));
            };
            // In autocommit the task is already durable. Inside a transaction its result counts
            // only after COMMIT.
            match replies.filter(|_| !connection.is_autocommit()) {
                Some(replies) => drop(replies.send(Box::new(tell))),
                None => tell(Ok(())),
            }
        });
        reply_of(queue.submit(step), asked)
    }
}

/// The result of a task that was queued, or the reason why it has none.
async fn reply_of<T>(
    taken: Result<(), WriterFull>,
    asked: oneshot::Receiver<Result<T, String>>,
) -> Result<T, String> {
    // The queue is full only when the disk has stalled, and then nothing must be promised.
    taken.map_err(|WriterFull| "the daemon's file cannot keep up".to_owned())?;
    match asked.await {
        Ok(done) => done,
        Err(_) => Err("the daemon's file is closed".to_owned()),
    }
}

/// Creates the state directory and checks that only its owner can read it.
fn prepare_folder(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| format!("{shown}: cannot be made: {error}"))?;
    let mode = fs::metadata(folder).map_err(|error| format!("{shown}: {error}"))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("{shown}: others can look into it; run chmod 700 on it"));
    }
    Ok(())
}

/// Takes an exclusive lock on the directory, held until the file is closed.
fn lock_folder(folder: &Path) -> Result<fs::File, String> {
    let path = folder.join("daemon.lock");
    let refuse = |why: String| format!("{}: {why}", path.display());
    create_private_file(&path).map_err(refuse)?;
    let file = fs::File::open(&path).map_err(|error| refuse(error.to_string()))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        refuse("another daemon works in this folder; give this one --state of its own".into())
    })?;
    Ok(file)
}

/// Creates a file that is private from its first byte, and refuses an existing one that others can
/// read.
pub(crate) fn create_private_file(path: &Path) -> Result<(), String> {
    leasehold_core::atomic_file::append_private(path).map_err(|error| error.to_string())?;
    let mode = fs::metadata(path).map_err(|error| error.to_string())?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err("others can read it; run chmod 600 on it".to_owned());
    }
    Ok(())
}

/// Starts the thread that reads the file at `path`, and returns its queue.
fn start_reader(path: &Path) -> Result<SyncSender<DatabaseTask>, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.busy_timeout(READ_BUSY_TIMEOUT).map(|()| connection))
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    let (steps, queue) = sync_channel::<DatabaseTask>(MAX_QUEUED_READS);
    thread::Builder::new()
        .name("db-read".to_owned())
        .spawn(move || queue.iter().for_each(|step| step(&connection)))
        .map_err(|error| error.to_string())?;
    Ok(steps)
}

fn run_writer(connection: Connection, queue: &Receiver<DatabaseTask>, replies: &Receiver<PendingReply>) {
    while let Ok(first) = queue.recv() {
        // One transaction for all queued tasks: they share the cost of one commit.
        let begun = connection.execute_batch("BEGIN IMMEDIATE").is_ok();
        first(&connection);
        for _ in 1..MAX_TASKS_PER_TRANSACTION {
            let Ok(step) = queue.try_recv() else { break };
            step(&connection);
        }
        let mut committed = Ok(());
        // A failed task may have rolled the transaction back. COMMIT then fails too, and that
        // reports the loss of the earlier tasks.
        if begun && let Err(error) = connection.execute_batch("COMMIT") {
            tracing::error!(%error, "the daemon's file could not be written");
            let _ = connection.execute_batch("ROLLBACK");
            committed = Err(error.to_string());
        }
        for tell in replies.try_iter() {
            tell(committed.clone());
        }
    }
}

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS secret (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS token_key (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS audit_head (
  id INTEGER PRIMARY KEY CHECK (id = 1), segment INTEGER NOT NULL, seq INTEGER NOT NULL, mac TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS history (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  epoch TEXT NOT NULL, hold INTEGER NOT NULL,
  name TEXT NOT NULL, class TEXT NOT NULL, holder TEXT NOT NULL, fence INTEGER,
  since INTEGER NOT NULL, until INTEGER, ended TEXT, why TEXT
);
CREATE INDEX IF NOT EXISTS history_open ON history (epoch, hold) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS history_name ON history (name, fence);
CREATE TABLE IF NOT EXISTS policy_change (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, class TEXT NOT NULL, change TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS hold (
  id TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL, class TEXT NOT NULL, holder TEXT NOT NULL,
  fence INTEGER NOT NULL, ttl_ms INTEGER, heartbeat_ms INTEGER NOT NULL, since INTEGER NOT NULL, attempt TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (owner, id)
);
";

/// Creates the tables, or migrates those of an earlier version.
fn prepare_tables(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(SCHEMA)?;
    let known = db.prepare("SELECT 1 FROM pragma_table_info('hold') WHERE name = 'attempt'")?.exists([])?;
    if !known {
        db.execute_batch("ALTER TABLE hold ADD COLUMN attempt TEXT NOT NULL DEFAULT ''")?;
    }
    let by_owner = db.prepare("SELECT 1 FROM pragma_table_info('hold') WHERE name = 'owner' AND pk > 0")?;
    if !{ by_owner }.exists([])? {
        // Ids were unique among all owners before, so no two rows collide.
        let columns = "id, owner, name, class, holder, fence, ttl_ms, heartbeat_ms, since, attempt";
        db.execute_batch(&format!(
            "SAVEPOINT keyed_by_owner; ALTER TABLE hold RENAME TO hold_by_id; {SCHEMA}
             INSERT INTO hold ({columns}) SELECT {columns} FROM hold_by_id;
             DROP TABLE hold_by_id; RELEASE keyed_by_owner;"
        ))?;
    }
    Ok(())
}

impl fmt::Debug for StateDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateDb").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
