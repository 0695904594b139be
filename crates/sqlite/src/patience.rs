//! How a step waits for another process's step to end.
//!
//! SQLite's own busy handler backs off to 100 ms, far longer than any step here takes, so that late comers
//! overtake those who have waited longest. This one asks again within a millisecond or two, jittered, until
//! the call's time is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Moment, SharedClock};
use leasehold_core::rng::{RandomExt, SharedRandom};

/// The first pause; it doubles every other time.
const FIRST: Duration = Duration::from_micros(100);
/// The pause does not double more often than this.
const DOUBLINGS: u32 = 4;

/// What is left of the time a step may wait; shared by the step and SQLite's busy handler.
#[derive(Debug)]
pub(crate) struct Patience {
    clock: SharedClock,
    random: SharedRandom,
    /// The moment at which it ends, in nanoseconds.
    until: AtomicU64,
    /// Nanoseconds that may still be slept: ends the waiting even if the clock stands still, as a test's may.
    left: AtomicU64,
}

impl Patience {
    pub(crate) fn new(clock: SharedClock, random: SharedRandom) -> Arc<Self> {
        Arc::new(Self {
            clock,
            random,
            until: AtomicU64::new(0),
            left: AtomicU64::new(0),
        })
    }

    /// Starts anew, for a step that may wait this long.
    pub(crate) fn allow(&self, limit: Duration) {
        let until = self.clock.now() + limit;
        self.until.store(until.as_nanos(), Ordering::Relaxed);
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.left.store(nanos, Ordering::Relaxed);
    }

    /// Waits a little; `false` if the time is up. `tries` counts the calls for one lock.
    pub(crate) fn wait(&self, tries: u32) -> bool {
        let pause = self.random.jitter(FIRST * (1 << (tries / 2).min(DOUBLINGS)));
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let left = self.left.load(Ordering::Relaxed);
        let ends = Moment::from_nanos(self.until.load(Ordering::Relaxed));
        if nanos > left || self.clock.now() >= ends {
            // Up is up: a shorter pause that would still fit must not start the waiting again.
            self.left.store(0, Ordering::Relaxed);
            return false;
        }
        self.left.store(left - nanos, Ordering::Relaxed);
        pause_thread(pause);
        true
    }
}

/// The store's own thread waits for a lock that another process holds: no runtime can wake it for that.
#[allow(clippy::disallowed_methods)]
fn pause_thread(pause: Duration) {
    std::thread::sleep(pause);
}

#[cfg(test)]
mod tests {
    use leasehold_core::clock::BootClock;
    use leasehold_core::rng::OsRandom;

    use super::*;

    #[test]
    fn ends_when_its_time_is_up() {
        let patience = Patience::new(BootClock::shared(), OsRandom::shared());
        assert!(!patience.wait(0), "nothing was allowed yet");
        patience.allow(Duration::from_millis(20));
        let waits = (0..1000).take_while(|tries| patience.wait(*tries)).count();
        assert!((1..1000).contains(&waits), "{waits}");
        assert!(!patience.wait(0));
    }
}
