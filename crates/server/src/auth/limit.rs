//! Token buckets that limit the request rate per identity, with a separate budget for renewals and
//! releases.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;

use super::Budget;

/// A request rate: an average and a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second in the long run.
    pub per_second: f64,
    /// Requests that may arrive at once after a quiet period.
    pub burst: f64,
}

/// The token buckets of all identities. Identities come from the tokens file, so their number is
/// bounded.
#[derive(Debug)]
pub struct RateLimits {
    request_rate: Rate,
    renewal_rate: Rate,
    buckets: Mutex<HashMap<(String, bool), TokenBucket>>,
}

#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    tokens: f64,
    updated_at: Moment,
}

impl RateLimits {
    /// Limits each identity to `request_rate` for ordinary requests and to `renewal_rate` for
    /// renewals and releases.
    #[must_use]
    pub fn new(request_rate: Rate, renewal_rate: Rate) -> Self {
        Self { request_rate, renewal_rate, buckets: Mutex::default() }
    }

    /// Charges one request to the identity's budget.
    ///
    /// # Errors
    /// The budget is used up; the value is how long to wait before the next request.
    pub fn take(&self, who: &str, budget: Budget, now: Moment) -> Result<(), Duration> {
        let (rate, kept) = match budget {
            Budget::Requests => (self.request_rate, false),
            Budget::Renewals => (self.renewal_rate, true),
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full = TokenBucket { tokens: rate.burst, updated_at: now };
        let bucket = buckets.entry((who.to_owned(), kept)).or_insert(full);
        let gained = now.since(bucket.updated_at).as_secs_f64() * rate.per_second;
        bucket.tokens = (bucket.tokens + gained).min(rate.burst);
        bucket.updated_at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - bucket.tokens) / rate.per_second))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_acquires_leaves_the_renewal_budget() {
        let rate = |burst| Rate { per_second: 10.0, burst };
        let limits = RateLimits::new(rate(3.0), rate(2.0));
        let now = Moment::from_nanos(1);
        let take = |budget, now| limits.take("a", budget, now).is_ok();
        assert_eq!((0..10).filter(|_| take(Budget::Requests, now)).count(), 3);
        assert!(take(Budget::Renewals, now) && take(Budget::Renewals, now) && !take(Budget::Renewals, now));
        assert!(limits.take("b", Budget::Requests, now).is_ok());
        // At ten per second the next token is a tenth of a second away, and the error says so.
        let wait = limits.take("a", Budget::Requests, now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(take(Budget::Requests, now + wait));
        // A long quiet period never accumulates more than the burst.
        let later = now + Duration::from_secs(3600);
        assert_eq!((0..10).filter(|_| take(Budget::Requests, later)).count(), 3);
    }
}
