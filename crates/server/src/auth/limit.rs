//! Token buckets that limit the request rate per identity, with a separate budget for renewals and
//! releases. Open routes are limited per peer address.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;

use super::Budget;
use crate::transport::peer::host_of;

/// A request rate: an average and a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second in the long run.
    pub per_second: f64,
    /// Requests that may arrive at once after a quiet period.
    pub burst: f64,
}

// Bounds memory: client certificates and peer addresses are not listed anywhere in advance.
const MAX_BUCKETS: usize = 4096;
// Far more than any orchestrator asks, and a small part of a core.
const PROBE_RATE: Rate = Rate { per_second: 1000.0, burst: 2000.0 };
// A sweep looks at every bucket, so a flood of new addresses must not cause one per request.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The token buckets of all identities, and of the addresses that call open routes.
#[derive(Debug)]
pub struct RateLimits {
    request_rate: Rate,
    renewal_rate: Rate,
    requests: Mutex<Buckets<String>>,
    renewals: Mutex<Buckets<String>>,
    /// Apart from the identities, whose buckets unidentified callers must not displace.
    addresses: Mutex<Buckets<IpAddr>>,
    /// Apart from the other open routes, which a caller may use up for its address.
    probes: Mutex<Buckets<IpAddr>>,
}

/// At most [`MAX_BUCKETS`] buckets; further keys share one.
#[derive(Debug)]
struct Buckets<K> {
    by_key: HashMap<K, TokenBucket>,
    shared: Option<TokenBucket>,
    swept_at: Moment,
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
        Self {
            request_rate,
            renewal_rate,
            requests: Mutex::default(),
            renewals: Mutex::default(),
            addresses: Mutex::default(),
            probes: Mutex::default(),
        }
    }

    /// Charges one request to the identity's budget.
    ///
    /// # Errors
    /// The budget is used up; the value is how long to wait before the next request.
    pub fn take(&self, who: &str, budget: Budget, now: Moment) -> Result<(), Duration> {
        let (rate, buckets) = match budget {
            Budget::Requests => (self.request_rate, &self.requests),
            Budget::Renewals => (self.renewal_rate, &self.renewals),
            // The peer has no address, so there is nothing to tell floods by.
            Budget::Probes => return Ok(()),
        };
        buckets.lock().unwrap_or_else(PoisonError::into_inner).take(who, rate, now)
    }

    /// Charges one request to an open route to the budget of the peer's address.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn take_unidentified(&self, from: IpAddr, budget: Budget, now: Moment) -> Result<(), Duration> {
        let from = host_of(from);
        if budget == Budget::Probes {
            let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
            probes.sweep_if_full(PROBE_RATE, now);
            // A refused probe restarts the daemon. A new address is answered even if a flood of others
            // has taken all buckets.
            if probes.by_key.len() >= MAX_BUCKETS && !probes.by_key.contains_key(&from) {
                return Ok(());
            }
            return probes.take(&from, PROBE_RATE, now);
        }
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.take(&from, self.request_rate, now)
    }
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), shared: None, swept_at: Moment::ZERO }
    }
}

impl<K: Hash + Eq> Buckets<K> {
    fn take<Q>(&mut self, key: &Q, rate: Rate, now: Moment) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let full = TokenBucket { tokens: rate.burst, updated_at: now };
        if let Some(bucket) = self.by_key.get_mut(key) {
            return bucket.take(rate, now);
        }
        self.sweep_if_full(rate, now);
        if self.by_key.len() >= MAX_BUCKETS {
            return self.shared.get_or_insert(full).take(rate, now);
        }
        self.by_key.entry(key.to_owned()).or_insert(full).take(rate, now)
    }

    /// Removes full buckets if there is no room for another one, once in a while.
    fn sweep_if_full(&mut self, rate: Rate, now: Moment) {
        if self.by_key.len() >= MAX_BUCKETS && now.since(self.swept_at) >= SWEEP_INTERVAL {
            self.swept_at = now;
            // A full bucket limits nothing, so it can be made anew.
            self.by_key.retain(|_, bucket| bucket.refilled(rate, now) < rate.burst);
        }
    }
}

impl TokenBucket {
    fn refilled(&self, rate: Rate, now: Moment) -> f64 {
        let gained = now.since(self.updated_at).as_secs_f64() * rate.per_second;
        (self.tokens + gained).min(rate.burst)
    }

    fn take(&mut self, rate: Rate, now: Moment) -> Result<(), Duration> {
        self.tokens = self.refilled(rate, now);
        self.updated_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - self.tokens) / rate.per_second))
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

    /// Finding 14 of the security review: callers of open routes shared one bucket.
    #[test]
    fn finding_14_addresses_have_budgets_of_their_own_in_bounded_number() {
        let rate = Rate { per_second: 1.0, burst: 2.0 };
        let limits = RateLimits::new(rate, rate);
        let now = Moment::from_nanos(1) + SWEEP_INTERVAL;
        let take = |from: &str, now| {
            let from: IpAddr = from.parse().unwrap();
            limits.take_unidentified(from, Budget::Requests, now).is_ok()
        };
        assert!(take("10.0.0.1", now) && take("10.0.0.1", now) && !take("10.0.0.1", now));
        assert!(take("10.0.0.2", now));
        // Addresses of one IPv6 network are one host.
        assert!(take("2001:db8::1", now) && take("2001:db8::2", now) && !take("2001:db8::3", now));
        for number in 0..2 * MAX_BUCKETS {
            take(&format!("172.16.{}.{}", number / 256, number % 256), now);
        }
        let buckets = || limits.addresses.lock().unwrap().by_key.len();
        assert_eq!(buckets(), MAX_BUCKETS);
        assert!(!take("10.0.0.1", now), "a flood of addresses must not give a new budget");
        assert!(take("10.9.9.9", now + Duration::from_secs(3600)));
        assert_eq!(buckets(), 1, "full buckets are not kept");
    }

    /// Finding 14 of the security review: probes had no limit at all, so a flood of them could take a core.
    #[test]
    fn finding_14_a_flood_of_probes_leaves_those_of_other_addresses() {
        let rate = Rate { per_second: 1.0, burst: 1.0 };
        let limits = RateLimits::new(rate, rate);
        let now = Moment::from_nanos(1) + SWEEP_INTERVAL;
        let probe = |from: IpAddr| limits.take_unidentified(from, Budget::Probes, now).is_ok();
        let stranger = "10.0.0.1".parse().unwrap();
        let answered = (0..10_000).filter(|_| probe(stranger)).count();
        assert_eq!(answered, 2000);
        assert!(probe("10.0.0.2".parse().unwrap()));
        for number in 0..2 * u32::try_from(MAX_BUCKETS).unwrap() {
            probe(IpAddr::V4((0xac10_0000 + number).into()));
        }
        assert!(probe("10.0.0.3".parse().unwrap()), "an address that is not in the table");
        assert_eq!(limits.probes.lock().unwrap().by_key.len(), MAX_BUCKETS);
    }
}
