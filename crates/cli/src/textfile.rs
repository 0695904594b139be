//! What a hold went through, as numbers in a file for node_exporter's textfile collector: `--metrics-file`.
//!
//! The file is replaced as a whole, so that a reader never sees half of one: at the start, at most once a second while
//! something happens, and at the end.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use leasehold::clock::{BootClock, Clock, ClockExt, until};
use leasehold::event::{Event, Observer};
use leasehold_metrics::Prometheus;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::say::say;

/// Between two writings.
const PAUSE: Duration = Duration::from_secs(1);
/// What the last one may take: a file system that hangs must not hold up the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts what happens. The kind of the store, which is a label, is known only once it is open.
#[derive(Debug, Default)]
pub(crate) struct Count {
    numbers: OnceLock<Prometheus>,
    moved: AtomicBool,
}

impl Observer for Count {
    fn on(&self, event: &Event) {
        if let Some(numbers) = self.numbers.get() {
            numbers.on(event);
            self.moved.store(true, Ordering::Release);
        }
    }
}

/// The file, written until [`end`](Self::end).
pub(crate) struct Textfile {
    path: PathBuf,
    count: Arc<Count>,
    writing: JoinHandle<()>,
}

impl Textfile {
    /// Writes the file for the first time.
    ///
    /// # Errors
    /// It cannot be written: better said before the command runs than after.
    pub(crate) fn begin(path: &Path, count: &Arc<Count>, store: &'static str) -> anyhow::Result<Self> {
        let numbers = count.numbers.get_or_init(|| Prometheus::new(store));
        replace(path, &numbers.encode_text()).with_context(|| {
            format!(
                "cannot write --metrics-file {}: the command did not run",
                path.display()
            )
        })?;
        let (path, count) = (path.to_owned(), Arc::clone(count));
        let writing = tokio::spawn(keep(path.clone(), Arc::clone(&count)));
        Ok(Self { path, count, writing })
    }

    /// Writes what has come last.
    pub(crate) async fn end(self) {
        self.writing.abort();
        let _ = self.writing.await;
        let last = write(self.path, self.count);
        let _ = until(&BootClock, BootClock.now() + PATIENCE, last).await;
    }
}

async fn keep(path: PathBuf, count: Arc<Count>) {
    let mut failed = false;
    loop {
        BootClock.sleep(PAUSE).await;
        if count.moved.swap(false, Ordering::AcqRel) {
            let written = write(path.clone(), Arc::clone(&count)).await;
            if let (Err(error), false) = (written, failed) {
                failed = true;
                // The work is worth more than its numbers.
                say(&format!(
                    "cannot write --metrics-file {}: {error}; the command goes on",
                    path.display()
                ));
            }
        }
    }
}

async fn write(path: PathBuf, count: Arc<Count>) -> std::io::Result<()> {
    let Some(numbers) = count.numbers.get() else {
        return Ok(());
    };
    let text = numbers.encode_text();
    spawn_blocking(move || replace(&path, &text)).await?
}

/// Puts a whole file in the place of the one that is there. Readable by everyone: the collector is another user, and there
/// are no names in it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // In the same folder, because only within a file system is it one step; the collector reads `*.prom` only.
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        let mut file = File::create(&beside)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
