//! Whether the machine itself kept up: a drill about time says nothing where processes do not get any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use tokio::task::JoinHandle;

/// How often it beats.
const BEAT: Duration = Duration::from_millis(20);

/// A task that sleeps for a moment, again and again, and remembers by how much it was woken too late.
#[derive(Debug)]
pub struct Pulse {
    worst: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Pulse {
    /// Later than this, nothing about time can be said: it is about half of what the shortest leases of the drills leave
    /// for a renewal.
    pub const LATE: Duration = Duration::from_millis(150);

    /// Begins to beat, on the current runtime.
    #[must_use]
    pub fn start() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&worst);
        let task = tokio::spawn(async move {
            loop {
                let due = BootClock.now() + BEAT;
                BootClock.sleep(BEAT).await;
                let late = BootClock.now().since(due);
                let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
                seen.fetch_max(late, Ordering::Relaxed);
            }
        });
        Self { worst, task }
    }

    /// The longest that a beat was late since this was last asked.
    #[must_use]
    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.worst.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_standstill_is_felt_once() {
        let pulse = Pulse::start();
        BootClock.sleep(BEAT * 2).await;
        let _ = pulse.take();
        #[allow(clippy::disallowed_methods, reason = "the whole runtime must stand still")]
        std::thread::sleep(Duration::from_millis(200));
        BootClock.sleep(BEAT * 2).await;
        assert!(pulse.take() >= Duration::from_millis(100));
    }
}
