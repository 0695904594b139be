//! The socket on which one store value receives wake-ups, and the thread that reads it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use leasehold_core::rng::{Random, RandomExt};
use leasehold_core::store::WakeRegistry;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::wake::{connect_or_remove, open_folder, short_socket_path};

/// A wake-up message is the owner hash of a token, or the hash of a document's name: this many hex digits.
const WAKE_MESSAGE_BYTES: usize = 32;

/// Limit of folder entries that a new socket checks for remains of dead processes.
const MAX_SWEPT_ENTRIES: usize = 64;

/// An open wake socket. Dropping it removes the socket file and ends its thread.
#[derive(Debug)]
pub(crate) struct WakeSocket {
    /// Written into the rows of waiters as their address.
    name: String,
    path: PathBuf,
    /// The thread ends when this end of the pair closes.
    _alive: UnixStream,
}

impl WakeSocket {
    /// Creates a socket with a new random name in the folder, and removes dead sockets.
    pub(crate) fn open(folder: &Path, random: &dyn Random, wakers: &Arc<WakeRegistry>) -> io::Result<Self> {
        ensure_private_folder(folder)?;
        remove_dead_sockets(folder);
        let name = format!("{:032x}", random.wide());
        let socket = UnixDatagram::bind(short_socket_path(&open_folder(folder)?, &name))?;
        let path = folder.join(&name);
        let (alive, ended) = UnixStream::pair()?;
        let wakers = Arc::clone(wakers);
        let started = thread::Builder::new()
            .name("leasehold-wake".to_owned())
            .spawn(move || deliver_wakeups(&socket, &ended, &wakers));
        if let Err(error) = started {
            drop(fs::remove_file(&path));
            return Err(error);
        }
        Ok(Self { name, path, _alive: alive })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether other processes can still find the socket file.
    pub(crate) fn is_reachable(&self, folder: &Path) -> bool {
        self.path.starts_with(folder)
            && fs::symlink_metadata(&self.path).is_ok_and(|found| found.file_type().is_socket())
    }
}

impl Drop for WakeSocket {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Notifies the listeners named by incoming messages, until the other end of `ended` closes.
fn deliver_wakeups(socket: &UnixDatagram, ended: &UnixStream, wakers: &WakeRegistry) {
    // One byte more than a valid message, so that a longer one is not truncated to a valid length.
    let mut letter = [0; WAKE_MESSAGE_BYTES + 1];
    loop {
        let mut waiting = [PollFd::new(socket, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let [message, end] = waiting.map(|fd| !fd.revents().is_empty());
        if end {
            return;
        }
        if message
            && let Ok(WAKE_MESSAGE_BYTES) = socket.recv(&mut letter)
            && let Some(Ok(key)) = letter.get(..WAKE_MESSAGE_BYTES).map(std::str::from_utf8)
            && !wakers.wake(key)
        {
            wakers.wake_group(key);
        }
    }
}

/// Creates the folder with mode 0700, or checks that it belongs to this user alone.
fn ensure_private_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not following links: another user could otherwise redirect wake-ups to a folder of their own.
    let found = fs::symlink_metadata(folder)?;
    let mine = found.uid() == rustix::process::geteuid().as_raw() || rustix::process::geteuid().is_root();
    if found.is_dir() && mine && found.permissions().mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the wake folder must be a folder of this user with mode 0700",
        ))
    }
}

/// Removes sockets whose process is dead.
fn remove_dead_sockets(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.take(MAX_SWEPT_ENTRIES).flatten() {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if let (true, Some(name)) = (is_socket, entry.file_name().to_str()) {
            // Connecting to a dead socket removes it.
            drop(connect_or_remove(folder, name));
        }
    }
}
