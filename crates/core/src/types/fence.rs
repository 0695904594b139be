//! The fence: the number that orders the grants of a name.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::InvalidInput;

/// A number that only grows for a name. The atomic step that grants a lease issues it. Send it with
/// every write: a target that remembers the highest fence refuses writers that lost their lease.
///
/// A fence is public (unlike a [`Token`](super::Token)), fits in 53 bits, and is a decimal string
/// in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(NonZeroU64);

impl Fence {
    /// The largest fence: the largest integer that a 64-bit float counts exactly, because Redis
    /// scripts and JavaScript use floats.
    pub const MAX: Self = Self(NonZeroU64::new((1 << 53) - 1).unwrap());
    /// The smallest fence. Zero is not a fence.
    pub const MIN: Self = Self(NonZeroU64::MIN);

    /// The fence with this number; `None` outside 1 to 2^53 - 1.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::MAX.0.get() => Some(Self(number)),
            _ => None,
        }
    }

    /// The number, for storage and comparison in other systems.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

impl FromStr for Fence {
    type Err = InvalidInput;
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        // `u64::from_str` accepts a leading `+` and zeros; one fence must have one spelling.
        let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        plain.then(|| text.parse().ok().and_then(Self::new)).flatten().ok_or_else(|| {
            InvalidInput::new("fence", text, format!("must be a decimal number from 1 to {}", Self::MAX))
        })
    }
}

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
