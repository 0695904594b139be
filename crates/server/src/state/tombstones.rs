//! Counts the tombstones that each identity has the store keep.
//!
//! A token that was not granted here may be one whose acquire is still on its way, so the tombstone is
//! needed. It may also be invented, and then each release would cost the store a row. A release is
//! never refused: beyond the quota it leaves a shorter tombstone, or none.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::store::TOMBSTONE_TTL;

use crate::state::token_on_name::TokenOnName;

/// The counted tombstones, by identity.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    by_owner: Mutex<HashMap<String, OwnerTombstones>>,
    /// Keyed at random, so that nobody can find tokens that are counted as one.
    hasher: RandomState,
}

/// Keyed by a hash of token and name: 20,000 tokens and names would take megabytes.
#[derive(Debug, Default)]
struct OwnerTombstones {
    expiries: HashMap<u64, Moment>,
    by_expiry: BTreeSet<(Moment, u64)>,
}

impl OwnerTombstones {
    fn remove_expired(&mut self, now: Moment) {
        while let Some((expiry, key)) = self.by_expiry.first().copied().filter(|(expiry, _)| *expiry <= now) {
            self.by_expiry.remove(&(expiry, key));
            self.expiries.remove(&key);
        }
    }

    /// Counts a tombstone, unless as many are counted already. A repeated one counts once.
    fn add(&mut self, key: u64, until: Moment, quota: usize) -> bool {
        let full = self.expiries.len() >= quota;
        match self.expiries.entry(key) {
            Entry::Vacant(_) if full => return false,
            Entry::Vacant(entry) => {
                entry.insert(until);
            }
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                if before >= until {
                    return true;
                }
                self.by_expiry.remove(&(before, key));
                entry.insert(until);
            }
        }
        self.by_expiry.insert((until, key));
        true
    }
}

impl Tombstones {
    /// The tombstone that a release may leave, of the `wanted` one.
    ///
    /// The usual one of a granted lease is not counted: a client that acquires and releases in turn must
    /// not run out of them. `granted`: the token has a lease on this name.
    pub(crate) fn admit(
        &self,
        who: &str,
        key: &TokenOnName,
        wanted: Duration,
        granted: bool,
        quota: usize,
        now: Moment,
    ) -> Option<Duration> {
        // Not counted for an identity without a limit: its table would have none either.
        if wanted.is_zero() || quota == usize::MAX || (granted && wanted <= TOMBSTONE_TTL) {
            return Some(wanted).filter(|keep| !keep.is_zero());
        }
        let mut by_owner = self.by_owner.lock().unwrap_or_else(PoisonError::into_inner);
        by_owner.retain(|owner, tombstones| {
            tombstones.remove_expired(now);
            !tombstones.expiries.is_empty() || owner == who
        });
        let tombstones = by_owner.entry(who.to_owned()).or_default();
        if tombstones.add(self.hasher.hash_one(key), now + wanted, quota) {
            return Some(wanted);
        }
        granted.then_some(TOMBSTONE_TTL)
    }

    /// Takes a tombstone out of the count: the token had a lease, which was granted elsewhere or before
    /// a restart. A longer one than usual counts all the same.
    pub(crate) fn was_granted(&self, who: &str, key: &TokenOnName, kept: Duration) {
        if kept > TOMBSTONE_TTL {
            return;
        }
        let mut by_owner = self.by_owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tombstones) = by_owner.get_mut(who) {
            let key = self.hasher.hash_one(key);
            if let Some(expiry) = tombstones.expiries.remove(&key) {
                tombstones.by_expiry.remove(&(expiry, key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Name;
    use leasehold_core::Token;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn key(number: u32) -> TokenOnName {
        let token = Token::parse(&format!("h|scheduler|{number:032x}")).unwrap();
        TokenOnName::new(&Name::new("a:1").unwrap(), &token)
    }

    #[test]
    fn expired_and_repeated_tombstones_do_not_count() {
        let (tombstones, now) = (Tombstones::default(), Moment::from_nanos(1));
        let add = |who, number, seconds, now| {
            tombstones.admit(who, &key(number), Duration::from_secs(seconds), false, 2, now).is_some()
        };
        assert!(add("a", 1, 60, now) && add("a", 2, 10, now) && !add("a", 3, 1, now) && add("b", 1, 1, now));
        assert!(add("a", 1, 60, now), "a retry is no new tombstone");
        let later = now + Duration::from_secs(10);
        assert!(add("a", 3, 1, later) && !add("a", 4, 1, later));
        assert_eq!(tombstones.by_owner.lock().unwrap().len(), 1, "an owner without tombstones is forgotten");
    }

    /// Finding 21 of the security review: tombstones of granted tokens were not counted at all.
    #[test]
    fn finding_21_long_tombstones_of_granted_leases_are_counted() {
        let (tombstones, now) = (Tombstones::default(), Moment::from_nanos(1));
        let admit = |number, keep| tombstones.admit("a", &key(number), keep, true, 1, now);
        assert_eq!(admit(1, HOUR), Some(HOUR));
        assert_eq!(admit(2, HOUR), Some(TOMBSTONE_TTL), "the usual one is never refused");
        assert_eq!(admit(3, TOMBSTONE_TTL), Some(TOMBSTONE_TTL));
        assert_eq!(tombstones.admit("a", &key(4), TOMBSTONE_TTL, false, 1, now), None);
        assert_eq!(tombstones.admit("root", &key(4), HOUR, true, usize::MAX, now), Some(HOUR));
    }

    #[test]
    fn a_lease_that_was_granted_elsewhere_leaves_the_count() {
        let (tombstones, now) = (Tombstones::default(), Moment::from_nanos(1));
        for number in 1..4 {
            let kept = tombstones.admit("a", &key(number), TOMBSTONE_TTL, false, 1, now);
            assert_eq!(kept, Some(TOMBSTONE_TTL));
            tombstones.was_granted("a", &key(number), TOMBSTONE_TTL);
        }
        assert_eq!(tombstones.admit("a", &key(5), HOUR, false, 1, now), Some(HOUR));
        tombstones.was_granted("a", &key(5), HOUR);
        assert_eq!(tombstones.admit("a", &key(6), HOUR, false, 1, now), None);
    }
}
