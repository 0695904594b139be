//! Injected time. The only file that may read a clock.
//!
//! A [`Moment`] is a point on the holder's own clock. [`BootClock`] reads `CLOCK_BOOTTIME`, which
//! counts suspended time and cannot be stepped, so a process that was suspended past its lease
//! notices it. Moments of two machines (or two boots) are never compared.

use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A point in time on one clock, in nanoseconds since that clock's origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than every moment that a clock returns: "never".
    pub const FAR: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the clock's origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How much later `self` is than `earlier`; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FAR { f.write_str("far") } else { write!(f, "{:?}", Duration::from_nanos(self.0)) }
    }
}

/// A boxed future without a result.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The current moment. Never goes back.
    fn now(&self) -> Moment;
    /// Completes at `at` or a little later, never earlier.
    fn sleep_until(&self, at: Moment) -> Sleep;
    /// The wall clock, for display only: no decision may depend on it.
    fn wall(&self) -> SystemTime;
}

/// Convenience methods for every clock.
pub trait ClockExt: Clock {
    /// Completes after the duration `by`.
    fn sleep(&self, by: Duration) -> Sleep {
        self.sleep_until(self.now() + by)
    }
}

impl<C: Clock + ?Sized> ClockExt for C {}

/// Runs `work` until `at` at most. `None` means that the time ran out and `work` was dropped.
pub async fn run_until<F: Future>(clock: &dyn Clock, at: Moment, work: F) -> Option<F::Output> {
    let sleep = clock.sleep_until(at);
    tokio::select! {
        // Polls the work first: a response that is already there wins over a deadline that has just
        // passed.
        biased;
        out = work => Some(out),
        () = sleep => None,
    }
}

/// A shared handle to a clock.
pub type SharedClock = Arc<dyn Clock>;

/// `CLOCK_BOOTTIME`: counts suspended time, cannot be stepped.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl BootClock {
    /// Returns a shared handle to the boot clock.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

// The runtime's timers stop while the machine is suspended, so a long sleep is taken in steps.
// After a resume, at most one step passes before the true time is seen.
const MAX_SLEEP_STEP: Duration = Duration::from_secs(1);

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Moment(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[allow(clippy::disallowed_methods)]
    fn sleep_until(&self, at: Moment) -> Sleep {
        let clock = *self;
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(MAX_SLEEP_STEP)).await;
            }
        })
    }

    #[allow(clippy::disallowed_methods)]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The runtime's clock, for tests. Under `tokio::test(start_paused = true)` it is virtual: it jumps
/// to the next timer when all tasks are idle, so hours pass in milliseconds.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClock {
    origin: tokio::time::Instant,
}

#[cfg(any(test, feature = "testing"))]
impl RuntimeClock {
    /// Returns a clock whose origin lies an hour back, so that no test depends on zero.
    #[must_use]
    #[allow(clippy::disallowed_methods)]
    pub fn shared() -> SharedClock {
        Arc::new(Self { origin: tokio::time::Instant::now() })
    }
}

#[cfg(any(test, feature = "testing"))]
impl Clock for RuntimeClock {
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Moment {
        Moment::ZERO + Duration::from_secs(3600) + tokio::time::Instant::now().duration_since(self.origin)
    }

    #[allow(clippy::disallowed_methods)]
    fn sleep_until(&self, at: Moment) -> Sleep {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now().since(Moment::ZERO)
    }
}
