//! The metrics of a hold in a file for node_exporter's textfile collector: `--metrics-file`.
//!
//! The file is replaced atomically at the start, at most once a second while events arrive, and at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use leasehold::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold::event::{Event, Observer};
use leasehold_core::atomic_file::{self, FileAccess};
use leasehold_metrics::Prometheus;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::message::print_message;

/// At least this long between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
// The limit of the last write: a file system that hangs must not delay the exit.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Counts events for the metrics file.
#[derive(Debug, Default)]
pub(crate) struct EventCounter {
    // The store's kind is a label of the metrics and is known only after the store is open.
    metrics: OnceLock<Prometheus>,
    changed: AtomicBool,
}

impl Observer for EventCounter {
    fn on_event(&self, event: &Event) {
        if let Some(numbers) = self.metrics.get() {
            numbers.on_event(event);
            self.changed.store(true, Ordering::Release);
        }
    }
}

/// The file, written in the background until [`finish`](Self::finish).
pub(crate) struct MetricsFile {
    path: PathBuf,
    counter: Arc<EventCounter>,
    task: JoinHandle<()>,
}

impl MetricsFile {
    /// Writes the file for the first time.
    ///
    /// # Errors
    /// The file cannot be written. Reported here, before the command runs.
    pub(crate) fn start(path: &Path, count: &Arc<EventCounter>, store: &'static str) -> anyhow::Result<Self> {
        let numbers = count.metrics.get_or_init(|| Prometheus::new(store));
        replace_file(path, &numbers.encode_text()).with_context(|| {
            format!("cannot write --metrics-file {}: the command did not run", path.display())
        })?;
        let (path, count) = (path.to_owned(), Arc::clone(count));
        let writing = tokio::spawn(write_periodically(path.clone(), Arc::clone(&count)));
        Ok(Self { path, counter: count, task: writing })
    }

    /// Stops the background task and writes the last values.
    pub(crate) async fn finish(self) {
        self.task.abort();
        let _ = self.task.await;
        let last = write_now(self.path, self.counter);
        let _ = run_until(&BootClock, BootClock.now() + LAST_WRITE_TIMEOUT, last).await;
    }
}

async fn write_periodically(path: PathBuf, count: Arc<EventCounter>) {
    let mut failed = false;
    loop {
        BootClock.sleep(WRITE_INTERVAL).await;
        if count.changed.swap(false, Ordering::AcqRel) {
            let written = write_now(path.clone(), Arc::clone(&count)).await;
            if let (Err(error), false) = (written, failed) {
                failed = true;
                // The command matters more than its metrics, so it continues. One report is enough.
                print_message(&format!(
                    "cannot write --metrics-file {}: {error}; the command goes on",
                    path.display()
                ));
            }
        }
    }
}

async fn write_now(path: PathBuf, count: Arc<EventCounter>) -> std::io::Result<()> {
    let Some(numbers) = count.metrics.get() else {
        return Ok(());
    };
    let text = numbers.encode_text();
    // File I/O off the runtime's threads: a slow disk must not delay a renewal.
    spawn_blocking(move || replace_file(&path, &text)).await?
}

/// World-readable: the collector runs as another user, and the file contains no lock names. The collector reads
/// `*.prom`, so it ignores the temporary file.
fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
    atomic_file::replace(path, FileAccess::WorldReadable, text.as_bytes())
}
