//! Wakes waiters in other processes when a lease is handed over to them, and followers of documents
//! when one changes.
//!
//! Every store value that listens has a Unix datagram socket in a folder beside the database
//! (`<file>.wake/`). The rows of its waiters carry the socket's name. The releasing process sends
//! the waiter's owner hash there. A datagram is a hint: if it is lost, the waiter gets its lease
//! with its next poll. A socket that refuses connections means that its process is dead.
//!
//! Followers of documents have no rows: a hash of the document's name goes to every socket in the folder.
//!
//! Sockets are opened through `/proc/self/fd/<folder>/<name>`. A socket address has at most 108
//! bytes, but a database may have a longer path, or another path in another container.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::Name;
use leasehold_core::rng::SharedRandom;
use leasehold_core::store::{WakeListener, WakeRegistry};
use rustix::fs::{Mode, OFlags};

use crate::step;
use crate::wake_socket::WakeSocket;

/// Limit of processes that a change of a document notifies. Followers in others find it by reading.
const MAX_NOTIFIED_PROCESSES: usize = 1024;

/// How a release reaches the waiter it hands the lease to.
#[derive(Debug)]
pub(crate) enum Route {
    /// The waiter listens in this store value.
    Local,
    /// Connected socket of the waiter's process.
    Remote(UnixDatagram),
    /// The waiter's process is dead.
    Dead,
    /// Not reachable, which does not prove that the process is dead.
    Unknown,
}

/// A wake-up to send after the hand-over is committed.
#[derive(Debug)]
pub(crate) struct PendingWake {
    /// Owner hash of the waiter, or the key of a document.
    owner: String,
    /// Resolved during the step, so that no lease is handed to a dead process.
    route: Route,
}

impl PendingWake {
    pub(crate) fn new(owner: String, route: Route) -> Self {
        Self { owner, route }
    }
}

/// Sends and receives wake-ups for one store value.
#[derive(Debug)]
pub(crate) struct WakeSender {
    /// Beside the database, where all its users find it.
    folder: PathBuf,
    /// Source of socket names, which other users must not be able to guess.
    random: SharedRandom,
    /// Listeners of this store value.
    wakers: Arc<WakeRegistry>,
    /// Opened on the first listen: a process that never waits has neither socket nor thread.
    socket: Mutex<Option<WakeSocket>>,
}

impl WakeSender {
    pub(crate) fn new(folder: PathBuf, random: SharedRandom) -> Self {
        Self { folder, random, wakers: Arc::new(WakeRegistry::default()), socket: Mutex::new(None) }
    }

    /// The listeners that the wake socket notifies.
    pub(crate) fn wakers(&self) -> &Arc<WakeRegistry> {
        &self.wakers
    }

    /// Makes sure that wake-ups can arrive. Cannot fail: without a socket, for example on a
    /// filesystem that has none, waiters poll.
    pub(crate) fn ensure_socket(&self) {
        let mut mailbox = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // An operator may have emptied the folder: a socket that no process
        // can find receives nothing.
        if mailbox.as_ref().is_some_and(|open| open.is_reachable(&self.folder)) {
            return;
        }
        *mailbox = None;
        match WakeSocket::open(&self.folder, &*self.random, &self.wakers) {
            Ok(open) => *mailbox = Some(open),
            Err(error) => {
                tracing::debug!(folder = %self.folder.display(), %error, "no wake-ups between processes: waiters poll");
            }
        }
    }

    /// Name of the socket for this store value's waiters; `None` if it has no listeners.
    pub(crate) fn address(&self) -> Option<String> {
        if self.wakers.is_empty() {
            return None;
        }
        self.ensure_socket();
        let mailbox = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.as_ref().map(|open| open.name().to_owned())
    }

    /// Resolves how to reach a waiter's process.
    pub(crate) fn route(&self, address: &str) -> Route {
        // The address comes from the file: `..` or `/` in it must not lead out of the folder.
        if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Route::Unknown;
        }
        let mailbox = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if mailbox.as_ref().is_some_and(|open| open.name() == address) {
            return Route::Local;
        }
        drop(mailbox);
        connect_or_remove(&self.folder, address)
    }

    /// Subscribes to the changes of one document.
    pub(crate) fn follow(&self, document: &Name) -> WakeListener {
        self.ensure_socket();
        self.wakers.listen_in_group(&document_key(document))
    }

    /// Notifies all followers of a document in all processes, best effort.
    pub(crate) fn notify_followers(&self, document: &Name) {
        let key = document_key(document);
        self.wakers.wake_group(&key);
        // Without the folder, no process listens.
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.take(MAX_NOTIFIED_PROCESSES).flatten() {
            let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
            if let (true, Some(address)) = (is_socket, entry.file_name().to_str()) {
                self.send(&PendingWake::new(key.clone(), self.route(address)));
            }
        }
    }

    /// Sends a wake-up, best effort.
    pub(crate) fn send(&self, wake: &PendingWake) {
        match &wake.route {
            Route::Local => drop(self.wakers.wake(&wake.owner)),
            Route::Remote(socket) => {
                if let Err(error) = socket.send(wake.owner.as_bytes()) {
                    tracing::debug!(%error, "a wake-up was not delivered: its waiter retries by itself");
                }
            }
            Route::Dead | Route::Unknown => {}
        }
    }
}

/// The wake-up message of a document. No token contains a space, so it differs from every owner hash.
fn document_key(document: &Name) -> String {
    step::short_hash(&format!("document {}", document.as_str()))
}

/// Connects to a socket in the folder. Removes it if its process is dead.
pub(crate) fn connect_or_remove(folder: &Path, name: &str) -> Route {
    let connect = || -> io::Result<UnixDatagram> {
        let folder = open_folder(folder)?;
        let socket = UnixDatagram::unbound()?;
        // A full socket buffer must not block the worker thread: all other requests of
        // this store value wait behind it.
        socket.set_nonblocking(true)?;
        socket.connect(short_socket_path(&folder, name))?;
        Ok(socket)
    };
    match connect() {
        Ok(socket) => Route::Remote(socket),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Names are random and never reused, so this cannot remove a new socket.
            drop(std::fs::remove_file(folder.join(name)));
            Route::Dead
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Route::Dead,
        Err(_) => Route::Unknown,
    }
}

/// Opens the folder itself: later lookups stay in it even if its path is replaced.
pub(crate) fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
}

/// A path short enough for a socket address.
pub(crate) fn short_socket_path(folder: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}
