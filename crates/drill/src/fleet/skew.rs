//! A wall clock of one process that can be set while it runs, without root and without touching the host's: libfaketime.
//!
//! Only what asks for the time of day is deceived. Clocks that count from the boot stay true, as they do on a host whose
//! operator or NTP daemon steps its clock.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::Error;

const LIBRARY: &str = "faketime/libfaketime.so.1";

/// A clock that can be set.
#[derive(Debug, Clone)]
pub struct Skew {
    library: PathBuf,
    file: PathBuf,
}

impl Skew {
    /// A clock that is right at first; `folder` holds what it is set to.
    ///
    /// # Errors
    /// libfaketime is not installed, or the folder cannot be written to.
    pub fn new(folder: &Path, name: &str) -> Result<Self, Error> {
        let library = library().ok_or_else(|| {
            Error::Missing(
                "libfaketime is not installed, so no process can be given a wrong clock: install it \
                 (Debian: apt-get install faketime)"
                    .to_owned(),
            )
        })?;
        let skew = Self {
            library,
            file: folder.join(name),
        };
        skew.set(0)?;
        Ok(skew)
    }

    /// Sets the clock this many seconds before (positive) or behind the true time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<(), Error> {
        let next = self.file.with_extension("next");
        // Read at every call, so it must never be seen half written.
        std::fs::write(&next, format!("{seconds:+}\n"))
            .and_then(|()| std::fs::rename(&next, &self.file))
            .map_err(Error::io("cannot set a process's clock"))
    }

    /// Sets the clock this many seconds further than it is.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn shift(&self, seconds: i64) -> Result<(), Error> {
        let now = std::fs::read_to_string(&self.file).map_err(Error::io("cannot read a process's clock"))?;
        self.set(now.trim().parse::<i64>().unwrap_or(0) + seconds)
    }

    /// The words before a command that put it under this clock. They become the command.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        // libc's own memory comes first: an allocator that asks for the time before libfaketime is ready (jemalloc, in
        // Debian's redis-server) would hang in a circle.
        vec![
            "env".into(),
            format!("LD_PRELOAD={} libc.so.6", self.library.display()).into(),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()).into(),
            "FAKETIME_NO_CACHE=1".into(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        ]
    }

    /// Takes back what libfaketime shares under this process's number with processes that it might start, and leaves behind
    /// when it is killed. What it has opened stays its own; servers and workers start nothing under the same clock.
    pub(super) fn unshare(pid: u32) {
        for shared in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
            let _ = std::fs::remove_file(Path::new("/dev/shm").join(shared));
        }
    }

    /// This process runs under such a clock.
    pub(super) fn is_ours() -> bool {
        std::env::var_os("FAKETIME_TIMESTAMP_FILE").is_some()
    }

    /// How far the time of day of a process under this clock is from the true one, asked of two processes.
    ///
    /// # Errors
    /// `date` cannot be run.
    pub async fn seen(&self) -> Result<i64, Error> {
        let date = |words: Vec<OsString>| async move {
            let mut words = words.into_iter().chain(["date".into(), "+%s".into()]);
            let mut command = tokio::process::Command::new(words.next().unwrap_or_default());
            // The keyboard's signals are not for it: killed, it would leave behind what it shares.
            let ran = command
                .args(words)
                .process_group(0)
                .stderr(Stdio::null())
                .output();
            let ran = ran.await;
            let out = ran.map_err(Error::io("cannot run date"))?.stdout;
            String::from_utf8_lossy(&out)
                .trim()
                .parse::<i64>()
                .map_err(|error| Error::Store(format!("date: {error}")))
        };
        Ok(date(self.words()).await? - date(Vec::new()).await?)
    }
}

/// An hour, in seconds: how far clocks are set in drills.
pub const HOUR: i64 = Duration::from_secs(3600).as_secs().cast_signed();

impl Skew {
    /// Whether clocks can be set here.
    #[must_use]
    pub fn possible() -> bool {
        library().is_some()
    }
}

fn library() -> Option<PathBuf> {
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    // Debian keeps it one folder deeper, named after the machine.
    let deeper = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let roots = roots.into_iter().chain(deeper.map(|entry| entry.path()));
    roots.map(|root| root.join(LIBRARY)).find(|path| path.is_file())
}
