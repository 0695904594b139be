//! The daemon's own file: what it must know after a restart. One thread writes it; nobody waits for the disk who need not.

use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rusqlite::Connection;
use tokio::sync::oneshot;

/// How many steps may wait for the disk. Beyond that, steps that nobody waits for are dropped and said.
const QUEUE: usize = 65_536;
/// The most steps of one transaction.
const BATCH: usize = 512;

/// Something to be done with the daemon's file.
pub type Step = Box<dyn FnOnce(&Connection) + Send>;

/// Who writes the daemon's file: one step after the other, in the order in which they came.
pub trait Scribe: Send + Sync {
    /// Does this when its turn comes.
    ///
    /// # Errors
    /// It cannot be taken, and will not be done.
    fn take(&self, step: Step) -> Result<(), Full>;
}

/// There is no room for another step, or nobody who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The daemon's own thread.
impl Scribe for SyncSender<Step> {
    fn take(&self, step: Step) -> Result<(), Full> {
        self.try_send(step).map_err(|_| Full)
    }
}

/// An answer that is given once it is known whether the transaction is in the file.
type Owed = Box<dyn FnOnce(Result<(), String>) + Send>;

/// The file, and the way to whoever writes it.
pub(crate) struct Ledger {
    scribe: Arc<dyn Scribe>,
    /// Where answers wait for the end of a transaction; none if each step is one of its own.
    owed: Option<Sender<Owed>>,
    /// Locked as long as this daemon lives: two on one folder would undo each other's work.
    lock: Mutex<Option<fs::File>>,
    closed: AtomicBool,
}

impl Ledger {
    /// Opens the file in this folder, or nothing but memory.
    ///
    /// # Errors
    /// The folder cannot be made or is readable by others, or the file cannot be used.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, String> {
        let mut lock = None;
        let connection = match folder {
            Some(folder) => {
                prepare(folder)?;
                lock = Some(alone(folder)?);
                let path = folder.join("daemon.db");
                let opened =
                    private(&path).and_then(|()| Connection::open(&path).map_err(|error| error.to_string()));
                opened.map_err(|why| format!("{}: cannot be used: {why}", path.display()))?
            }
            None => Connection::open_in_memory().map_err(|error| error.to_string())?,
        };
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 2000;",
            )
            .and_then(|()| prepare_tables(&connection))
            .map_err(|error| format!("the daemon's file cannot be used: {error}"))?;
        let (ledger, writer) = Self::on(connection, lock);
        thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(writer)
            .map_err(|error| error.to_string())?;
        Ok(ledger)
    }

    /// On this connection, and what must be run to write it.
    fn on(connection: Connection, lock: Option<fs::File>) -> (Self, impl FnOnce() + Send) {
        let (steps, queue) = sync_channel(QUEUE);
        let (owe, owed) = channel();
        let ledger = Self::of(Arc::new(steps), Some(owe), lock);
        (ledger, move || write(connection, &queue, &owed))
    }

    /// Has someone else write it, each step as a transaction of its own.
    pub(crate) fn with(scribe: Arc<dyn Scribe>) -> Self {
        let ledger = Self::of(scribe, None, None);
        ledger.note(|db| {
            let _ = prepare_tables(db);
        });
        ledger
    }

    fn of(scribe: Arc<dyn Scribe>, owed: Option<Sender<Owed>>, lock: Option<fs::File>) -> Self {
        Self {
            scribe,
            owed,
            lock: Mutex::new(lock),
            closed: AtomicBool::new(false),
        }
    }

    /// Does this when its turn comes; nobody waits for it.
    pub(crate) fn note(&self, step: impl FnOnce(&Connection) + Send + 'static) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        if self.scribe.take(Box::new(step)).is_err() {
            tracing::error!("the daemon's file cannot keep up: a step of the history is lost");
        }
    }

    /// Everything that was noted is in the file; from now on it is the next life's.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let _ = self.ask(|_| Ok(())).await;
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Does this, and answers once it is in the file. It has its turn from the call on, not only when it is waited for.
    pub(crate) fn ask<T, S>(&self, step: S) -> impl Future<Output = Result<T, String>> + Send + use<T, S>
    where
        T: Send + 'static,
        S: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.answered(step, self.owed.clone())
    }

    /// Reads this, as it is with everything that was noted before. What else could not be written is not its concern.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        self.answered(step, None).await
    }

    fn answered<T, S>(
        &self,
        step: S,
        owed: Option<Sender<Owed>>,
    ) -> impl Future<Output = Result<T, String>> + Send + use<T, S>
    where
        T: Send + 'static,
        S: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, asked) = oneshot::channel();
        let step: Step = Box::new(move |connection| {
            let done = step(connection).map_err(|error| error.to_string());
            let tell = move |committed: Result<(), String>| {
                let _ = answer.send(done.and_then(|done| committed.map(|()| done)));
            };
            match owed.filter(|_| !connection.is_autocommit()) {
                Some(owed) => drop(owed.send(Box::new(tell))),
                None => tell(Ok(())),
            }
        });
        let taken = self.scribe.take(step);
        async move {
            // Only full when the disk has stopped; and then nothing should be promised.
            taken.map_err(|Full| "the daemon's file cannot keep up".to_owned())?;
            match asked.await {
                Ok(done) => done,
                Err(_) => Err("the daemon's file is closed".to_owned()),
            }
        }
    }
}

/// A folder of our own.
fn prepare(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| format!("{shown}: cannot be made: {error}"))?;
    let mode = fs::metadata(folder)
        .map_err(|error| format!("{shown}: {error}"))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err(format!("{shown}: others can look into it; run chmod 700 on it"));
    }
    Ok(())
}

/// Nobody else works in this folder.
fn alone(folder: &Path) -> Result<fs::File, String> {
    let path = folder.join("daemon.lock");
    let refuse = |why: String| format!("{}: {why}", path.display());
    private(&path).map_err(refuse)?;
    let file = fs::File::open(&path).map_err(|error| refuse(error.to_string()))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        refuse("another daemon works in this folder; give this one --state of its own".into())
    })?;
    Ok(file)
}

/// A file that only we can read, from its first byte on.
pub(crate) fn private(path: &Path) -> Result<(), String> {
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| error.to_string())?;
    let mode = fs::metadata(path)
        .map_err(|error| error.to_string())?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return Err("others can read it; run chmod 600 on it".to_owned());
    }
    Ok(())
}

fn write(connection: Connection, queue: &Receiver<Step>, owed: &Receiver<Owed>) {
    while let Ok(first) = queue.recv() {
        // Many steps, one transaction: what waits meanwhile shares its price.
        let begun = connection.execute_batch("BEGIN IMMEDIATE").is_ok();
        first(&connection);
        for _ in 1..BATCH {
            let Ok(step) = queue.try_recv() else { break };
            step(&connection);
        }
        let mut committed = Ok(());
        // Also if a step's failure has ended the transaction: what was before it is lost, and this says so.
        if begun && let Err(error) = connection.execute_batch("COMMIT") {
            tracing::error!(%error, "the daemon's file could not be written");
            let _ = connection.execute_batch("ROLLBACK");
            committed = Err(error.to_string());
        }
        for tell in owed.try_iter() {
            tell(committed.clone());
        }
    }
}

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS secret (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL);
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
  id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, class TEXT NOT NULL, holder TEXT NOT NULL,
  fence INTEGER NOT NULL, ttl_ms INTEGER, heartbeat_ms INTEGER NOT NULL, since INTEGER NOT NULL, attempt TEXT NOT NULL DEFAULT ''
);
";

/// The tables as this version wants them, in a new file or in one of an earlier version.
fn prepare_tables(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(SCHEMA)?;
    let known = db
        .prepare("SELECT 1 FROM pragma_table_info('hold') WHERE name = 'attempt'")?
        .exists([])?;
    if !known {
        db.execute_batch("ALTER TABLE hold ADD COLUMN attempt TEXT NOT NULL DEFAULT ''")?;
    }
    Ok(())
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
