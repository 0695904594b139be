//! An adjustable wall clock for one process, by libfaketime. It needs no root and does not change
//! the host's clock.
//!
//! Only the time of day is faked. Clocks that count from boot stay correct, as they do on a host
//! whose operator or NTP daemon steps the wall clock.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold_core::atomic_file::{self, FileAccess};

use super::DrillError;

const LIBFAKETIME: &str = "faketime/libfaketime.so.1";

/// A wall clock whose offset can be changed while processes run under it.
#[derive(Debug, Clone)]
pub struct FakeWallClock {
    library: PathBuf,
    offset_file: PathBuf,
}

impl FakeWallClock {
    /// Creates a clock without offset. A file in `folder` holds the offset.
    ///
    /// # Errors
    /// libfaketime is not installed, or the folder cannot be written to.
    pub fn new(folder: &Path, name: &str) -> Result<Self, DrillError> {
        let library = find_library().ok_or_else(|| {
            DrillError::MissingTool(
                "libfaketime is not installed, so no process can be given a wrong clock: install it \
                 (Debian: apt-get install faketime)"
                    .to_owned(),
            )
        })?;
        let skew = Self { library, offset_file: folder.join(name) };
        skew.set_offset(0)?;
        Ok(skew)
    }

    /// Sets the clock this many seconds ahead of (positive) or behind the real time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_offset(&self, seconds: i64) -> Result<(), DrillError> {
        // libfaketime reads the file at every call, so it must never see a half-written one.
        atomic_file::replace(&self.offset_file, FileAccess::Umask, format!("{seconds:+}\n").as_bytes())
            .map_err(DrillError::io("cannot set a process's clock"))
    }

    /// Moves the clock by this many seconds.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn shift_offset(&self, seconds: i64) -> Result<(), DrillError> {
        let now = std::fs::read_to_string(&self.offset_file)
            .map_err(DrillError::io("cannot read a process's clock"))?;
        self.set_offset(now.trim().parse::<i64>().unwrap_or(0) + seconds)
    }

    /// The command prefix that runs a program under this clock. `env` replaces itself with the
    /// program.
    #[must_use]
    pub fn command_prefix(&self) -> Vec<OsString> {
        // libc.so.6 is preloaded for its allocator. jemalloc, in Debian's redis-server, reads the
        // time before libfaketime is ready, and would deadlock.
        vec![
            "env".into(),
            format!("LD_PRELOAD={} libc.so.6", self.library.display()).into(),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.offset_file.display()).into(),
            "FAKETIME_NO_CACHE=1".into(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        ]
    }

    /// Removes the shared memory and semaphore that libfaketime creates for a process and its
    /// children. A killed process leaves them behind. The process keeps what it has opened, and
    /// servers and workers have no children that need them.
    pub(super) fn remove_shared_memory(pid: u32) {
        for shared in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
            let _ = std::fs::remove_file(Path::new("/dev/shm").join(shared));
        }
    }

    /// Whether this process runs under a fake wall clock.
    pub(super) fn runs_in_this_process() -> bool {
        std::env::var_os("FAKETIME_TIMESTAMP_FILE").is_some()
    }

    /// Measures the offset, as the difference between `date` under this clock and plain `date`.
    ///
    /// # Errors
    /// `date` cannot be run.
    pub async fn measure_offset(&self) -> Result<i64, DrillError> {
        let date = |words: Vec<OsString>| async move {
            let mut words = words.into_iter().chain(["date".into(), "+%s".into()]);
            let mut command = tokio::process::Command::new(words.next().unwrap_or_default());
            // In its own process group: Ctrl-C would kill it and leave its shared memory behind.
            let ran = command.args(words).process_group(0).stderr(Stdio::null()).output();
            let ran = ran.await;
            let out = ran.map_err(DrillError::io("cannot run date"))?.stdout;
            String::from_utf8_lossy(&out)
                .trim()
                .parse::<i64>()
                .map_err(|error| DrillError::Store(format!("date: {error}")))
        };
        Ok(date(self.command_prefix()).await? - date(Vec::new()).await?)
    }
}

/// One hour in seconds, the offset that drills use.
pub const HOUR_SECONDS: i64 = Duration::from_secs(3600).as_secs().cast_signed();

impl FakeWallClock {
    /// Whether libfaketime is installed on this host.
    #[must_use]
    pub fn is_available() -> bool {
        find_library().is_some()
    }
}

fn find_library() -> Option<PathBuf> {
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    // Debian installs it in a folder named after the architecture.
    let deeper = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let roots = roots.into_iter().chain(deeper.map(|entry| entry.path()));
    roots.map(|root| root.join(LIBFAKETIME)).find(|path| path.is_file())
}
