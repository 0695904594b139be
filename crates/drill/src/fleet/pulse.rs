//! Whether the machine itself kept up: a drill about time says nothing where processes do not get any, or where the disk
//! does not answer.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};
use tokio::task::JoinHandle;

use super::Error;

/// How often it beats.
const BEAT: Duration = Duration::from_millis(20);

/// How often it writes.
const WRITE: Duration = Duration::from_millis(100);

/// A task that sleeps for a moment, again and again, and remembers by how much it was woken too late; and a thread that
/// writes to the disk, and remembers how long that took.
#[derive(Debug)]
pub struct Pulse {
    worst: Arc<AtomicU64>,
    task: JoinHandle<()>,
    ended: Arc<AtomicBool>,
}

impl Pulse {
    /// Later than this, nothing about time can be said: it is about half of what the shortest leases of the drills leave
    /// for a renewal.
    pub const LATE: Duration = Duration::from_millis(150);

    /// Begins to beat, on the current runtime, and to write into a file of this folder.
    ///
    /// # Errors
    /// The file cannot be made, or no thread be started.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        let worst = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&worst);
        let task = tokio::spawn(async move {
            loop {
                let due = BootClock.now() + BEAT;
                BootClock.sleep(BEAT).await;
                late(&seen, due);
            }
        });
        let pulse = Self {
            worst,
            task,
            ended: Arc::default(),
        };
        let file = File::create(folder.join("pulse")).map_err(Error::io("cannot write to the disk"))?;
        let (seen, ended) = (Arc::clone(&pulse.worst), Arc::clone(&pulse.ended));
        std::thread::Builder::new()
            .name("pulse".to_owned())
            .spawn(move || write(&file, &seen, &ended))
            .map_err(Error::io("cannot start a thread"))?;
        Ok(pulse)
    }

    /// The longest that a beat was late, or a write took, since this was last asked.
    #[must_use]
    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.worst.swap(0, Ordering::Relaxed))
    }
}

fn late(worst: &AtomicU64, due: Moment) {
    let late = BootClock.now().since(due);
    worst.fetch_max(
        u64::try_from(late.as_nanos()).unwrap_or(u64::MAX),
        Ordering::Relaxed,
    );
}

#[allow(clippy::disallowed_methods, reason = "a thread of its own, and no runtime's")]
fn write(mut file: &File, worst: &AtomicU64, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let before = BootClock.now();
        let written = file.write_all(b".").and_then(|()| file.sync_data());
        // A disk that is full or gone shows elsewhere.
        if written.is_err() {
            return;
        }
        late(worst, before);
        std::thread::sleep(WRITE);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.task.abort();
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_standstill_is_felt_once() {
        let folder = tempfile::tempdir().unwrap();
        let pulse = Pulse::start(folder.path()).unwrap();
        BootClock.sleep(BEAT * 2).await;
        let _ = pulse.take();
        #[allow(clippy::disallowed_methods, reason = "the whole runtime must stand still")]
        std::thread::sleep(Duration::from_millis(200));
        BootClock.sleep(BEAT * 2).await;
        assert!(pulse.take() >= Duration::from_millis(100));
    }
}
