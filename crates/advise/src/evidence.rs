//! The recorded data of one class, and whether it is enough for advice.

use std::time::Duration;

use crate::sample::Sample;

// With this many holds, the longest one exceeds the true 99th percentile in 19 of 20 cases: the
// smallest n with `1 - 0.99^n >= 0.95`. With fewer holds the p99 is a guess.
const MIN_RECORDED_HOLDS: u64 = 299;

/// The recorded data of one class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Times for which locks were held.
    pub held: Sample,
    /// Response times of the store for renewals and acquires.
    pub store: Sample,
    /// Delays of renewals caused by the holder's process: pauses and starvation.
    pub stalls: Sample,
    /// Number of renewals that had to be retried.
    pub retries: u64,
    /// Number of all renewals.
    pub renewals: u64,
}

/// Fewer holds were recorded than advice needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "too little data: {have} recorded holds, and a 99th percentile needs {need} to be more than a guess\n\
     record {} more, or say what you know with --p99", need - have
)]
#[non_exhaustive]
pub struct InsufficientData {
    /// Number of recorded holds.
    pub have: u64,
    /// Number of holds that advice needs.
    pub need: u64,
}

impl Evidence {
    /// Evidence from held times only.
    pub fn of_held(durations: impl IntoIterator<Item = Duration>) -> Self {
        Self { held: Sample::of(durations), ..Self::default() }
    }

    /// Checks that enough holds were recorded.
    ///
    /// # Errors
    /// Too few; the error says how many are missing.
    pub fn check_enough(&self) -> Result<(), InsufficientData> {
        let have = self.held.count();
        if have >= MIN_RECORDED_HOLDS {
            return Ok(());
        }
        Err(InsufficientData { have, need: MIN_RECORDED_HOLDS })
    }

    /// All recorded delays that can make a renewal miss its deadline.
    #[must_use]
    pub fn delays(&self) -> Sample {
        self.store.clone().merge(self.stalls.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_says_how_much_is_missing() {
        let second = Duration::from_secs(1);
        let few = Evidence::of_held([second; 298]).check_enough().unwrap_err();
        assert!(few.to_string().contains("record 1 more"), "{few}");
        assert_eq!(Evidence::of_held([second; 299]).check_enough(), Ok(()));
        // 299 is the smallest number with the documented property.
        assert!(1.0 - 0.99f64.powi(299) >= 0.95);
        assert!(1.0 - 0.99f64.powi(298) < 0.95);
    }
}
