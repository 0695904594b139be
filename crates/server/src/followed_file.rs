//! Files that are followed while the daemon runs: the tokens file, the certificate and its key.
//!
//! A change is found by content. A mounted Kubernetes secret changes by a new link with equal times
//! and sizes, and an edit may leave both as they were.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::{Moment, SharedClock};
use sha2::{Digest, Sha256};

// Bounds how long a revoked token still works, at the cost of reading the files once per interval.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
// Keeps a wrong path (a log, a device) from being read into memory.
pub(crate) const MAX_FOLLOWED_FILE_BYTES: u64 = 1024 * 1024;

/// Files that are loaded together, and when they have to be loaded again.
pub(crate) struct FollowedFiles {
    paths: Vec<PathBuf>,
    clock: SharedClock,
    last_check: Mutex<(Moment, Option<ContentHash>)>,
}

type ContentHash = [u8; 32];

impl FollowedFiles {
    /// Follows these files from their present content on. Call it before loading them: a change
    /// while they are loaded is found then.
    pub(crate) fn new(paths: Vec<PathBuf>, clock: SharedClock) -> Self {
        let last_check = Mutex::new((clock.now(), hash(&paths).ok()));
        Self { paths, clock, last_check }
    }

    /// Calls `load` if a check is due and the content has changed.
    pub(crate) fn reload_if_changed(&self, load: impl FnOnce()) {
        // Held during the load, so that a burst of requests reads a changed file once.
        let mut last = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if now.since(last.0) < FILE_CHECK_INTERVAL {
            return;
        }
        last.0 = now;
        let content = hash(&self.paths).ok();
        // A missing file is tried, and logged, at every check until it is back. An invalid one is
        // reported once.
        if content.is_none() || content != last.1 {
            last.1 = content;
            load();
        }
    }
}

fn hash(paths: &[PathBuf]) -> io::Result<ContentHash> {
    let mut all = Sha256::new();
    for path in paths {
        let content = read_bounded(path)?;
        all.update((content.len() as u64).to_be_bytes());
        all.update(content);
    }
    Ok(all.finalize().into())
}

/// Reads a file of at most [`MAX_FOLLOWED_FILE_BYTES`].
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(MAX_FOLLOWED_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FOLLOWED_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FOLLOWED_FILE_BYTES} bytes")));
    }
    Ok(content)
}
