//! What a daemon takes from the machine it runs on: time, chance, and someone who writes its file.
//!
//! [`Parts::default`] is the machine's own. Whoever gives others (a simulation) decides what time it is, what is drawn and
//! when a line is on the disk; the daemon is the same.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;
use leasehold::clock::{BootClock, Moment, SharedClock, Sleep as Nap};
use leasehold::leasehold_core::rng::{OsRandom, SharedRandom};

use crate::ledger::Scribe;

/// What a daemon takes from its machine.
#[derive(Clone)]
#[must_use]
pub struct Parts {
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    pub(crate) timing: Timing,
    /// None: a thread of the daemon's own, with the file in its folder.
    pub(crate) scribe: Option<Arc<dyn Scribe>>,
}

impl Parts {
    /// This clock, for everything that takes time; this source of chance; and this writer instead of a thread and a file.
    pub fn new(clock: SharedClock, random: SharedRandom, scribe: Arc<dyn Scribe>) -> Self {
        Self {
            timing: Timing::by(SharedClock::clone(&clock)),
            clock,
            random,
            scribe: Some(scribe),
        }
    }
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            clock: BootClock::shared(),
            random: OsRandom::shared(),
            timing: Timing(Arc::new(TokioTimer::new())),
            scribe: None,
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// The timer of connections.
#[derive(Clone)]
pub(crate) struct Timing(Arc<dyn Timer + Send + Sync>);

impl Timing {
    fn by(clock: SharedClock) -> Self {
        Self(Arc::new(ByClock {
            // An instant cannot be made out of nothing; only differences to this one count.
            began: (TokioTimer::new().now(), clock.now()),
            clock,
        }))
    }
}

impl fmt::Debug for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timing")
    }
}

impl Timer for Timing {
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

/// A clock of ours as hyper wants it.
struct ByClock {
    began: (Instant, Moment),
    clock: SharedClock,
}

impl Timer for ByClock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let at = self.began.1 + deadline.duration_since(self.began.0);
        Box::pin(Napping(Mutex::new(self.clock.sleep_until(at))))
    }

    fn now(&self) -> Instant {
        self.began.0 + self.clock.now().since(self.began.1)
    }
}

/// Behind a lock that nobody ever waits for: hyper wants sleeps to be `Sync`.
struct Napping(Mutex<Nap>);

impl Future for Napping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let nap = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        nap.as_mut().poll(cx)
    }
}

impl Sleep for Napping {}
