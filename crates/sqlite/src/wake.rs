//! Telling a waiter in another process to ask again.
//!
//! Every store value that listens has a Unix datagram socket in a folder beside the database
//! (`<file>.wake/`), and its waiters' rows carry the socket's name. Whoever hands them a lease sends the hash
//! of their token there. A datagram is a hint: if it is lost, the waiter gets in when it asks again by
//! itself. A socket nobody has open any more tells that its process is gone.
//!
//! Sockets are reached through `/proc/self/fd/<folder>/<name>`: a socket's path may have 108 bytes at most,
//! and a database may lie deeper than that, or under another path in another container.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::rng::SharedRandom;
use leasehold_core::store::Wakers;
use rustix::fs::{Mode, OFlags};

use crate::mailbox::Mailbox;

/// The way from a release to the waiter it was for.
#[derive(Debug)]
pub(crate) enum Route {
    /// It waits in this very store value.
    Here,
    /// Its process's socket.
    There(UnixDatagram),
    /// Its process is gone.
    Dead,
    /// It cannot be reached, which does not prove that it is gone.
    Unknown,
}

/// A wake-up to be sent once the hand-over is committed.
#[derive(Debug)]
pub(crate) struct Wake {
    /// Whom to wake: the hash of its token.
    owner: String,
    /// Found while the step was running, so that the dead are known before they are handed anything.
    route: Route,
}

impl Wake {
    pub(crate) fn new(owner: String, route: Route) -> Self {
        Self { owner, route }
    }
}

/// A store value's side of all wake-ups.
#[derive(Debug)]
pub(crate) struct Post {
    /// Beside the database, so that all its users find it.
    folder: PathBuf,
    /// Names of sockets come from here: nobody can guess where to knock.
    random: SharedRandom,
    /// Those who listen in this value.
    wakers: Arc<Wakers>,
    /// Made when somebody listens for the first time: a process that never waits has neither socket nor
    /// thread.
    mailbox: Mutex<Option<Mailbox>>,
}

impl Post {
    pub(crate) fn new(folder: PathBuf, random: SharedRandom) -> Self {
        Self {
            folder,
            random,
            wakers: Arc::new(Wakers::default()),
            mailbox: Mutex::new(None),
        }
    }

    /// The bells that this value's mailbox rings.
    pub(crate) fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    /// Makes sure that hints can arrive. Without a socket (a filesystem that has none, say) waiters still get
    /// in by asking again, so this cannot fail.
    pub(crate) fn receive(&self) {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have tidied the folder up: a socket that nobody can find rings no bell.
        if mailbox
            .as_ref()
            .is_some_and(|open| open.is_reachable(&self.folder))
        {
            return;
        }
        *mailbox = None;
        match Mailbox::open(&self.folder, &*self.random, &self.wakers) {
            Ok(open) => *mailbox = Some(open),
            Err(error) => {
                tracing::debug!(folder = %self.folder.display(), %error, "no wake-ups between processes: waiters poll");
            }
        }
    }

    /// Where wake-ups for this value's waiters can be sent.
    pub(crate) fn address(&self) -> Option<String> {
        if self.wakers.is_empty() {
            return None;
        }
        self.receive();
        let mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.as_ref().map(|open| open.name().to_owned())
    }

    /// Finds the way to a waiter's process.
    pub(crate) fn route(&self, address: &str) -> Route {
        // The address comes out of a file: it must not lead anywhere else.
        if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Route::Unknown;
        }
        let mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        if mailbox.as_ref().is_some_and(|open| open.name() == address) {
            return Route::Here;
        }
        drop(mailbox);
        reach(&self.folder, address)
    }

    /// Sends a wake-up. Nothing waits for it and nothing depends on it.
    pub(crate) fn send(&self, wake: &Wake) {
        match &wake.route {
            Route::Here => drop(self.wakers.wake(&wake.owner)),
            Route::There(socket) => {
                if let Err(error) = socket.send(wake.owner.as_bytes()) {
                    tracing::debug!(%error, "a wake-up was not delivered: its waiter will ask again by itself");
                }
            }
            Route::Dead | Route::Unknown => {}
        }
    }
}

/// Connects to a socket in the folder. A dead one is removed on the way.
pub(crate) fn reach(folder: &Path, name: &str) -> Route {
    let connect = || -> io::Result<UnixDatagram> {
        let folder = open_folder(folder)?;
        let socket = UnixDatagram::unbound()?;
        // A full mailbox must not stop the sender, who holds up everybody else.
        socket.set_nonblocking(true)?;
        socket.connect(through(&folder, name))?;
        Ok(socket)
    };
    match connect() {
        Ok(socket) => Route::There(socket),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Names are never used twice, so this cannot hit a socket made meanwhile.
            drop(std::fs::remove_file(folder.join(name)));
            Route::Dead
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Route::Dead,
        Err(_) => Route::Unknown,
    }
}

/// A handle to the folder itself, whatever is put in its place later.
pub(crate) fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
}

/// A path short enough for a socket's address.
pub(crate) fn through(folder: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}
