//! Recorded durations, single or in histogram buckets, with counts and quantiles.

use std::time::Duration;

/// Durations with their counts, in order.
///
/// A histogram bucket counts as its upper bound, so advice from buckets is never shorter than
/// advice from the durations themselves. Durations beyond the last bound are only known to be
/// longer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    counts: Vec<(Duration, u64)>,
    /// Number of durations longer than every bound.
    beyond: u64,
}

/// The quantile is beyond the largest bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than the largest bucket of the histogram ({largest:?}): record durations, or add larger buckets"
)]
#[non_exhaustive]
pub struct BeyondHistogram {
    /// Upper bound of the largest bucket.
    pub largest: Duration,
}

impl Sample {
    /// Builds a sample from single durations, in any order.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut all: Vec<_> = durations.into_iter().collect();
        all.sort_unstable();
        let mut seen: Vec<(Duration, u64)> = Vec::new();
        for duration in all {
            match seen.last_mut() {
                Some((last, count)) if *last == duration => *count += 1,
                _ => seen.push((duration, 1)),
            }
        }
        Self { counts: seen, beyond: 0 }
    }

    /// Builds a sample from counts per bucket (not cumulative) and the count beyond the last bound.
    #[must_use]
    pub fn of_buckets(mut buckets: Vec<(Duration, u64)>, beyond: u64) -> Self {
        buckets.sort_unstable();
        buckets.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 += later.1;
            }
            same
        });
        // Empty buckets are kept: they show how far the histogram extends.
        Self { counts: buckets, beyond }
    }

    /// Merges two samples.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let beyond = self.beyond + other.beyond;
        let mut seen = self.counts;
        seen.extend(other.counts);
        Self::of_buckets(seen, beyond)
    }

    /// Number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum::<u64>() + self.beyond
    }

    /// Whether no duration was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The smallest recorded duration that at least this share (0 to 1) does not exceed; zero for
    /// an empty sample.
    ///
    /// # Errors
    /// The quantile is in the last, open bucket.
    pub fn quantile(&self, share: f64) -> Result<Duration, BeyondHistogram> {
        let count = self.count();
        // Nearest rank, counted from one. Counts are far below 2^52.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut passed = 0;
        for (duration, count) in &self.counts {
            passed += count;
            if passed >= rank {
                return Ok(*duration);
            }
        }
        match self.counts.last() {
            Some((largest, _)) => Err(BeyondHistogram { largest: *largest }),
            None => Ok(Duration::ZERO),
        }
    }

    /// Number of durations longer than the limit. Those in the open bucket count as longer.
    #[must_use]
    pub fn longer_than(&self, limit: Duration) -> u64 {
        let seen = self.counts.iter().filter(|(duration, _)| *duration > limit);
        seen.map(|(_, count)| count).sum::<u64>() + self.beyond
    }

    /// The durations with their counts, in order.
    #[must_use]
    pub fn counts(&self) -> &[(Duration, u64)] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let sample = Sample::of((1..=100).rev().map(ms));
        assert_eq!(sample.quantile(0.99), Ok(ms(99)));
        assert_eq!(sample.quantile(1.0), Ok(ms(100)));
        assert_eq!(sample.quantile(0.0), Ok(ms(1)));
        assert_eq!(Sample::default().quantile(0.99), Ok(Duration::ZERO));
    }

    #[test]
    fn buckets_count_as_their_upper_bound_and_the_open_one_is_unknown() {
        let sample = Sample::of_buckets(vec![(ms(100), 90), (ms(1000), 9)], 1);
        assert_eq!(sample.quantile(0.9), Ok(ms(100)));
        assert_eq!(sample.quantile(0.99), Ok(ms(1000)));
        assert_eq!(sample.quantile(0.999), Err(BeyondHistogram { largest: ms(1000) }));
        assert_eq!(sample.longer_than(ms(100)), 10);
    }

    proptest! {
        #[test]
        fn a_quantile_covers_its_share(durations in prop::collection::vec(0u64..10_000, 1..200), share in 0.0f64..=1.0) {
            let sample = Sample::of(durations.iter().copied().map(ms));
            let at = sample.quantile(share).unwrap();
            let within = durations.iter().filter(|one| ms(**one) <= at).count();
            prop_assert!(within as f64 >= share * durations.len() as f64 - 1e-6);
            // No smaller duration covers the share.
            let below = durations.iter().filter(|one| ms(**one) < at).count();
            prop_assert!((below as f64) < (share * durations.len() as f64).max(1.0) + 1e-6);
        }

        #[test]
        fn merging_is_as_if_recorded_together(a in prop::collection::vec(0u64..50, 0..50), b in prop::collection::vec(0u64..50, 0..50)) {
            let merged = Sample::of(a.iter().copied().map(ms)).merge(Sample::of(b.iter().copied().map(ms)));
            prop_assert_eq!(merged, Sample::of(a.into_iter().chain(b).map(ms)));
        }
    }
}
