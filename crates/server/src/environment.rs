//! What a daemon takes from its machine: a clock, randomness, and a writer for its database file.
//!
//! [`Environment::default`] uses the real ones. A simulation passes its own and so controls time,
//! random numbers and when a write reaches the disk. The rest of the daemon is the same code.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;
use leasehold::clock::{BootClock, Moment, SharedClock, Sleep as Nap};
use leasehold_core::rng::{OsRandom, SharedRandom};

use crate::state::state_db::DatabaseWriter;

/// The clock, randomness and database writer of a daemon. A simulation replaces all three.
#[derive(Clone)]
#[must_use]
pub struct Environment {
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    pub(crate) timer: ConnectionTimer,
    /// `None`: the daemon starts a writer thread and opens the file in its state directory.
    pub(crate) writer: Option<Arc<dyn DatabaseWriter>>,
}

impl Environment {
    /// An environment that runs on `clock` and `random`, and writes through `writer` instead of a
    /// thread and a file. Connection timeouts follow `clock` too.
    pub fn new(clock: SharedClock, random: SharedRandom, writer: Arc<dyn DatabaseWriter>) -> Self {
        Self {
            timer: ConnectionTimer::from_clock(SharedClock::clone(&clock)),
            clock,
            random,
            writer: Some(writer),
        }
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            clock: BootClock::shared(),
            random: OsRandom::shared(),
            timer: ConnectionTimer(Arc::new(TokioTimer::new())),
            writer: None,
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

/// The timer that hyper uses for connection timeouts, so that simulated time reaches them too.
#[derive(Clone)]
pub(crate) struct ConnectionTimer(Arc<dyn Timer + Send + Sync>);

impl ConnectionTimer {
    fn from_clock(clock: SharedClock) -> Self {
        Self(Arc::new(ClockTimer {
            // `Instant` has no public constructor. hyper only compares instants, so one real
            // instant serves as the origin and the clock adds the differences.
            began: (TokioTimer::new().now(), clock.now()),
            clock,
        }))
    }
}

impl fmt::Debug for ConnectionTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timing")
    }
}

impl Timer for ConnectionTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.0.sleep(duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.sleep_until(deadline)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        self.0.reset(sleep, new_deadline);
    }
}

/// Adapts a `SharedClock` to hyper's `Timer`.
struct ClockTimer {
    began: (Instant, Moment),
    clock: SharedClock,
}

impl Timer for ClockTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let at = self.began.1 + deadline.duration_since(self.began.0);
        Box::pin(ClockSleep(Mutex::new(self.clock.sleep_until(at))))
    }

    fn now(&self) -> Instant {
        self.began.0 + self.clock.now().since(self.began.1)
    }
}

/// hyper requires sleeps to be `Sync`, which the clock's are not. The mutex is never contended:
/// `poll` has `&mut self`.
struct ClockSleep(Mutex<Nap>);

impl Future for ClockSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let nap = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        nap.as_mut().poll(cx)
    }
}

impl Sleep for ClockSleep {}
