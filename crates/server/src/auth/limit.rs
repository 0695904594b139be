//! Token buckets: how often one identity may ask, with a budget apart for renewals and releases.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;

use super::Budget;

/// So many requests a second on average, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// On average.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
}

/// The buckets of every identity. Identities are those of the tokens file, so their number is bounded.
#[derive(Debug)]
pub struct Limits {
    asking: Rate,
    keeping: Rate,
    buckets: Mutex<HashMap<(String, bool), Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Moment,
}

impl Limits {
    /// These rates for each identity.
    #[must_use]
    pub fn new(asking: Rate, keeping: Rate) -> Self {
        Self {
            asking,
            keeping,
            buckets: Mutex::default(),
        }
    }

    /// Takes one request out of the budget.
    ///
    /// # Errors
    /// It is used up: when to come again.
    pub fn take(&self, who: &str, budget: Budget, now: Moment) -> Result<(), Duration> {
        let (rate, kept) = match budget {
            Budget::Asking => (self.asking, false),
            Budget::Keeping => (self.keeping, true),
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full = Bucket {
            left: rate.burst,
            at: now,
        };
        let bucket = buckets.entry((who.to_owned(), kept)).or_insert(full);
        let gained = now.since(bucket.at).as_secs_f64() * rate.per_second;
        bucket.left = (bucket.left + gained).min(rate.burst);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - bucket.left) / rate.per_second))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_asks_leaves_renewals_their_budget() {
        let rate = |burst| Rate {
            per_second: 10.0,
            burst,
        };
        let limits = Limits::new(rate(3.0), rate(2.0));
        let now = Moment::from_nanos(1);
        let take = |budget, now| limits.take("a", budget, now).is_ok();
        assert_eq!((0..10).filter(|_| take(Budget::Asking, now)).count(), 3);
        assert!(take(Budget::Keeping, now) && take(Budget::Keeping, now) && !take(Budget::Keeping, now));
        assert!(limits.take("b", Budget::Asking, now).is_ok());
        // A tenth of a second is one more, and said so.
        let wait = limits.take("a", Budget::Asking, now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(take(Budget::Asking, now + wait));
        // Never more than the burst, however long it was quiet.
        let later = now + Duration::from_secs(3600);
        assert_eq!((0..10).filter(|_| take(Budget::Asking, later)).count(), 3);
    }
}
