//! Clocks that misbehave: one whose wall is stepped, one that jumps without any timer firing.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime};

use leasehold_core::clock::{Clock, Moment, SharedClock, Sleep};

/// Another clock, but the wall can be stepped: what an operator or a time service does to a host.
#[derive(Debug)]
pub struct Stepped {
    inner: SharedClock,
    by_secs: AtomicI64,
}

impl Stepped {
    pub fn new(inner: SharedClock) -> Arc<Self> {
        Arc::new(Self {
            inner,
            by_secs: AtomicI64::new(0),
        })
    }

    /// The wall is this far from the truth from now on.
    pub fn step(&self, by_secs: i64) {
        self.by_secs.store(by_secs, Ordering::SeqCst);
    }
}

impl Clock for Stepped {
    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        self.inner.sleep_until(at)
    }

    fn wall(&self) -> SystemTime {
        let by = self.by_secs.load(Ordering::SeqCst);
        let step = Duration::from_secs(by.unsigned_abs());
        if by < 0 {
            self.inner.wall() - step
        } else {
            self.inner.wall() + step
        }
    }
}

/// Moves only when told. [`jump`](Self::jump) moves it as a suspended process sees it: time is gone, and no timer has
/// fired yet. Clones are the same clock.
#[derive(Clone)]
pub struct Manual {
    nanos: Arc<AtomicU64>,
    sleepers: Arc<Mutex<Vec<Waker>>>,
}

impl Manual {
    pub fn new() -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(3_600_000_000_000)),
            sleepers: Arc::default(),
        }
    }

    /// Time passes and timers stay silent.
    pub fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap();
        self.nanos.fetch_add(by, Ordering::SeqCst);
    }

    /// Now they fire.
    pub fn ring(&self) {
        for sleeper in std::mem::take(&mut *self.sleepers.lock().unwrap()) {
            sleeper.wake();
        }
    }
}

impl fmt::Debug for Manual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Manual")
    }
}

impl Clock for Manual {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        let clock = self.clone();
        Box::pin(poll_fn(move |cx| {
            if clock.now() >= at {
                return Poll::Ready(());
            }
            clock.sleepers.lock().unwrap().push(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now().since(Moment::ZERO)
    }
}
