//! How long, and in which rhythm, a step waits for another process's write lock.
//!
//! SQLite's own busy handler backs off to 100 ms, far longer than any step here takes, so late
//! arrivals overtake steps that waited longest. This handler retries every millisecond or two, with
//! jitter, until the call's deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Moment, SharedClock};
use leasehold_core::rng::{RandomExt, SharedRandom};

/// Pause before the first retry; it doubles every second retry.
const FIRST_RETRY_PAUSE: Duration = Duration::from_micros(100);
/// Limit of the doubling: 100 µs × 2⁴ = 1.6 ms.
const MAX_PAUSE_DOUBLINGS: u32 = 4;

/// Deadline of one step, shared by the step and SQLite's busy handler.
#[derive(Debug)]
pub(crate) struct BusyTimeout {
    clock: SharedClock,
    random: SharedRandom,
    /// Deadline of the current step.
    deadline_ns: AtomicU64,
    /// Nanoseconds that may still be slept. Ends the wait even if a test's clock stands still.
    sleep_budget_ns: AtomicU64,
}

impl BusyTimeout {
    pub(crate) fn new(clock: SharedClock, random: SharedRandom) -> Arc<Self> {
        Arc::new(Self { clock, random, deadline_ns: AtomicU64::new(0), sleep_budget_ns: AtomicU64::new(0) })
    }

    /// Sets the deadline for a new step.
    pub(crate) fn start_step(&self, limit: Duration) {
        let until = self.clock.now() + limit;
        self.deadline_ns.store(until.as_nanos(), Ordering::Relaxed);
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_budget_ns.store(nanos, Ordering::Relaxed);
    }

    /// Sleeps for one pause; `false` if the deadline has passed. `tries`
    /// counts the retries for one lock.
    pub(crate) fn wait_before_retry(&self, tries: u32) -> bool {
        let pause = self.random.jitter(FIRST_RETRY_PAUSE * (1 << (tries / 2).min(MAX_PAUSE_DOUBLINGS)));
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let left = self.sleep_budget_ns.load(Ordering::Relaxed);
        let ends = Moment::from_nanos(self.deadline_ns.load(Ordering::Relaxed));
        if nanos > left || self.clock.now() >= ends {
            // A later, shorter pause might still fit into the rest. It must not restart the wait.
            self.sleep_budget_ns.store(0, Ordering::Relaxed);
            return false;
        }
        self.sleep_budget_ns.store(left - nanos, Ordering::Relaxed);
        sleep_thread(pause);
        true
    }
}

/// Blocks the store's own thread: no async runtime can wake it when another process unlocks a file.
#[allow(clippy::disallowed_methods)]
fn sleep_thread(pause: Duration) {
    std::thread::sleep(pause);
}

#[cfg(test)]
mod tests {
    use leasehold_core::clock::BootClock;
    use leasehold_core::rng::OsRandom;

    use super::*;

    #[test]
    fn wait_ends_at_the_deadline() {
        let timeout = BusyTimeout::new(BootClock::shared(), OsRandom::shared());
        assert!(!timeout.wait_before_retry(0), "nothing was allowed yet");
        timeout.start_step(Duration::from_millis(20));
        let waits = (0..1000).take_while(|tries| timeout.wait_before_retry(*tries)).count();
        assert!((1..1000).contains(&waits), "{waits}");
        assert!(!timeout.wait_before_retry(0));
    }
}
