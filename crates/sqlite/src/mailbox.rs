//! The socket at which one store value receives wake-ups, and the thread that rings the bells.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use leasehold_core::rng::{Random, RandomExt};
use leasehold_core::store::Wakers;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::wake::{open_folder, reach, through};

/// A wake-up is the hash of a token: so many hex digits.
const LENGTH: usize = 32;

/// How many of the folder's entries a new mailbox looks at for the remains of dead processes.
const SWEPT: usize = 64;

/// An open socket. Dropping it removes the socket and ends its thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// What waiters' rows carry.
    name: String,
    /// To remove it by.
    path: PathBuf,
    /// The thread ends when this end is closed.
    _alive: UnixStream,
}

impl Mailbox {
    /// Makes a socket of a new name in the folder, and tidies up after the dead.
    pub(crate) fn open(folder: &Path, random: &dyn Random, wakers: &Arc<Wakers>) -> io::Result<Self> {
        own(folder)?;
        sweep(folder);
        let name = format!("{:032x}", random.wide());
        let socket = UnixDatagram::bind(through(&open_folder(folder)?, &name))?;
        let path = folder.join(&name);
        let (alive, ended) = UnixStream::pair()?;
        let wakers = Arc::clone(wakers);
        let started = thread::Builder::new()
            .name("leasehold-wake".to_owned())
            .spawn(move || ring(&socket, &ended, &wakers));
        if let Err(error) = started {
            drop(fs::remove_file(&path));
            return Err(error);
        }
        Ok(Self {
            name,
            path,
            _alive: alive,
        })
    }

    /// The socket's name in its folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Others can still find it.
    pub(crate) fn is_reachable(&self, folder: &Path) -> bool {
        self.path.starts_with(folder)
            && fs::symlink_metadata(&self.path).is_ok_and(|found| found.file_type().is_socket())
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Rings the bells of those whose hints arrive, until the other end of `ended` is closed.
fn ring(socket: &UnixDatagram, ended: &UnixStream, wakers: &Wakers) {
    let mut letter = [0; LENGTH + 1];
    loop {
        let mut waiting = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(ended, PollFlags::IN),
        ];
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let [mail, end] = waiting.map(|fd| !fd.revents().is_empty());
        if end {
            return;
        }
        if mail
            && let Ok(LENGTH) = socket.recv(&mut letter)
            && let Some(Ok(owner)) = letter.get(..LENGTH).map(std::str::from_utf8)
        {
            wakers.wake(owner);
        }
    }
}

/// Makes the folder for this user only, or makes sure that it is.
fn own(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
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

/// Removes sockets that nobody has open any more.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.take(SWEPT).flatten() {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if let (true, Some(name)) = (is_socket, entry.file_name().to_str()) {
            // Reaching for a dead one removes it.
            drop(reach(folder, name));
        }
    }
}
