//! The time to live of a lease.

use std::fmt;
use std::time::Duration;

use super::InvalidInput;

/// A lease's time to live: 100 ms to 24 h, in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// 100 ms: a shorter lease leaves no time to work after one round trip.
    pub const MIN: Self = Self(100);
    /// 24 h: a longer lease would block a name for days after a crash.
    pub const MAX: Self = Self(24 * 60 * 60 * 1000);

    /// Validates a time to live; fractions of a millisecond are cut off.
    ///
    /// # Errors
    /// The duration is outside 100 ms to 24 h.
    pub fn new(duration: Duration) -> Result<Self, InvalidInput> {
        u32::try_from(duration.as_millis())
            .ok()
            .map(Self)
            .filter(|ttl| (Self::MIN..=Self::MAX).contains(ttl))
            .ok_or_else(|| InvalidInput::new("ttl", format!("{duration:?}"), "must be from 100ms to 24h"))
    }

    /// The time to live as a duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }

    /// The time to live in whole milliseconds, as stores write it.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.get())
    }
}
