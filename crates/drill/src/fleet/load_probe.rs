//! Measures whether the host kept up. Broken time limits prove nothing on a host whose processes
//! get no CPU time or whose disk does not answer.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};
use tokio::task::JoinHandle;

use super::DrillError;

const WAKE_INTERVAL: Duration = Duration::from_millis(20);

const DISK_WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Records the longest delay of the host: a task measures how late it wakes up, and a thread how
/// long a disk write takes.
#[derive(Debug)]
pub struct LoadProbe {
    worst_delay_nanos: Arc<AtomicU64>,
    task: JoinHandle<()>,
    ended: Arc<AtomicBool>,
}

impl LoadProbe {
    /// With a longer delay, broken time limits are not counted. It is about half of the time that
    /// the drills' shortest leases leave for a renewal.
    pub const MAX_DELAY: Duration = Duration::from_millis(150);

    /// Starts the task on the current runtime, and the thread, which writes to a file in this
    /// folder.
    ///
    /// # Errors
    /// The file cannot be created, or the thread cannot be started.
    pub fn start(folder: &Path) -> Result<Self, DrillError> {
        let worst = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&worst);
        let task = tokio::spawn(async move {
            loop {
                let due = BootClock.now() + WAKE_INTERVAL;
                BootClock.sleep(WAKE_INTERVAL).await;
                record_delay(&seen, due);
            }
        });
        let probe = Self { worst_delay_nanos: worst, task, ended: Arc::default() };
        let file =
            File::create(folder.join("load-probe")).map_err(DrillError::io("cannot write to the disk"))?;
        let (seen, ended) = (Arc::clone(&probe.worst_delay_nanos), Arc::clone(&probe.ended));
        std::thread::Builder::new()
            .name("load-probe".to_owned())
            .spawn(move || probe_disk(&file, &seen, &ended))
            .map_err(DrillError::io("cannot start a thread"))?;
        Ok(probe)
    }

    /// Returns the longest delay since the last call.
    #[must_use]
    pub fn take_worst_delay(&self) -> Duration {
        Duration::from_nanos(self.worst_delay_nanos.swap(0, Ordering::Relaxed))
    }
}

fn record_delay(worst: &AtomicU64, due: Moment) {
    let late = BootClock.now().since(due);
    worst.fetch_max(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

#[allow(clippy::disallowed_methods, reason = "a thread of its own, and no runtime's")]
fn probe_disk(mut file: &File, worst: &AtomicU64, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let before = BootClock.now();
        let written = file.write_all(b".").and_then(|()| file.sync_data());
        // A full or missing disk makes the drill itself fail.
        if written.is_err() {
            return;
        }
        record_delay(worst, before);
        std::thread::sleep(DISK_WRITE_INTERVAL);
    }
}

impl Drop for LoadProbe {
    fn drop(&mut self) {
        self.task.abort();
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stall_is_measured_once() {
        let folder = tempfile::tempdir().unwrap();
        let probe = LoadProbe::start(folder.path()).unwrap();
        BootClock.sleep(WAKE_INTERVAL * 2).await;
        let _ = probe.take_worst_delay();
        #[allow(clippy::disallowed_methods, reason = "the whole runtime must stand still")]
        std::thread::sleep(Duration::from_millis(200));
        BootClock.sleep(WAKE_INTERVAL * 2).await;
        assert!(probe.take_worst_delay() >= Duration::from_millis(100));
    }
}
