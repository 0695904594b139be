//! What was recorded about one class, and whether it is enough to advise on.

use std::time::Duration;

use crate::sample::Sample;

/// With this many recorded holds, the longest is beyond the true 99th percentile in 19 of 20 cases:
/// the smallest n with `1 - 0.99^n >= 0.95`. With fewer, the p99 is a guess.
const ENOUGH: u64 = 299;

/// What was recorded about one class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// How long locks were held.
    pub held: Sample,
    /// How long the store took to answer renewals and acquires.
    pub store: Sample,
    /// How late renewals came for reasons of the holder's own: pauses, starvation.
    pub stalls: Sample,
    /// Renewals that had to be sent again.
    pub retries: u64,
    /// Renewals altogether.
    pub renewals: u64,
}

/// Fewer holds were recorded than an advice needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "too little data: {have} recorded holds, and a 99th percentile needs {need} to be more than a guess\n\
     record {} more, or say what you know with --p99", need - have
)]
pub struct TooLittle {
    /// Recorded.
    pub have: u64,
    /// Needed.
    pub need: u64,
}

impl Evidence {
    /// Holds of these lengths, and nothing else known.
    pub fn of_held(durations: impl IntoIterator<Item = Duration>) -> Self {
        Self {
            held: Sample::of(durations),
            ..Self::default()
        }
    }

    /// Is this enough to advise on?
    ///
    /// # Errors
    /// Says how much is missing.
    pub fn enough(&self) -> Result<(), TooLittle> {
        let have = self.held.count();
        if have >= ENOUGH {
            return Ok(());
        }
        Err(TooLittle { have, need: ENOUGH })
    }

    /// Everything that can keep a renewal from being confirmed in time.
    #[must_use]
    pub fn delays(&self) -> Sample {
        self.store.clone().and(self.stalls.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_says_how_much_is_missing() {
        let second = Duration::from_secs(1);
        let few = Evidence::of_held([second; 298]).enough().unwrap_err();
        assert!(few.to_string().contains("record 1 more"), "{few}");
        assert_eq!(Evidence::of_held([second; 299]).enough(), Ok(()));
        // The figure is what it says it is.
        assert!(1.0 - 0.99f64.powi(299) >= 0.95);
        assert!(1.0 - 0.99f64.powi(298) < 0.95);
    }
}
