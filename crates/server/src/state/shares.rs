//! A bounded resource that callers share: wait slots, bytes of bodies and responses, history queries,
//! connections.
//!
//! One identity gets at most its share, so that others find something too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A resource with a total and a maximum for one identity.
#[derive(Debug)]
pub(crate) struct Shares {
    max_total: usize,
    max_per_identity: usize,
    counts: Mutex<ShareCounts>,
}

#[derive(Debug, Default)]
struct ShareCounts {
    total: usize,
    /// What each identity uses. Entries at zero are removed, so the map cannot grow without bound.
    by_identity: HashMap<String, usize>,
}

/// What one request uses of the resource; given back when dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub(crate) struct Share {
    shares: Arc<Shares>,
    identity: String,
    amount: usize,
}

impl Shares {
    /// `max_total` units, and one of `parts` equal parts of them per identity.
    pub(crate) fn new(max_total: usize, parts: usize) -> Arc<Self> {
        Arc::new(Self { max_total, max_per_identity: max_total.div_ceil(parts), counts: Mutex::default() })
    }

    /// Takes one unit of this identity's share, if one is free.
    pub(crate) fn take(self: &Arc<Self>, who: &str) -> Option<Share> {
        let mut share = self.empty_share(who);
        share.grow(1).then_some(share)
    }

    /// Whether this identity can take nothing more.
    pub(crate) fn is_used_up(&self, who: &str) -> bool {
        self.left(&self.counts.lock().unwrap_or_else(PoisonError::into_inner), who) == 0
    }

    /// How much this identity can still take. Both limits: many identities together must not exceed the
    /// total either.
    fn left(&self, counts: &ShareCounts, who: &str) -> usize {
        let had = counts.by_identity.get(who).copied().unwrap_or(0);
        self.max_per_identity.saturating_sub(had).min(self.max_total.saturating_sub(counts.total))
    }

    /// A share that uses nothing yet.
    pub(crate) fn empty_share(self: &Arc<Self>, who: &str) -> Share {
        Share { shares: Arc::clone(self), identity: who.to_owned(), amount: 0 }
    }
}

impl Share {
    /// Takes `more` units. Takes nothing if the resource or the identity's part of it is used up.
    #[must_use]
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let mut counts = self.shares.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if more > self.shares.left(&counts, &self.identity) {
            return false;
        }
        self.amount += more;
        counts.add(&self.identity, more);
        true
    }

    /// Takes as many of `wanted` units as the resource and the identity's part have left. Returns how many
    /// were not taken.
    #[must_use]
    pub(crate) fn grow_to_limit(&mut self, wanted: usize) -> usize {
        let mut counts = self.shares.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = wanted.min(self.shares.left(&counts, &self.identity));
        self.amount += taken;
        counts.add(&self.identity, taken);
        wanted - taken
    }
}

impl ShareCounts {
    fn add(&mut self, identity: &str, more: usize) {
        self.total += more;
        if more > 0 {
            *self.by_identity.entry(identity.to_owned()).or_default() += more;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total = counts.total.saturating_sub(self.amount);
        if let Some(had) = counts.by_identity.get_mut(&self.identity) {
            *had = had.saturating_sub(self.amount);
            if *had == 0 {
                counts.by_identity.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_gets_half_of_the_slots_and_frees_them() {
        let places = Shares::new(6, 2);
        let take = |who| places.take(who);
        let mut a: Vec<_> = (0..9).filter_map(|_| take("a")).collect();
        let b: Vec<_> = (0..9).filter_map(|_| take("b")).collect();
        assert_eq!((a.len(), b.len(), take("c").is_none()), (3, 3, true));
        a.pop();
        let c = take("c");
        assert!(c.is_some() && take("a").is_none() && take("d").is_none());
        drop((a, b, c));
        let taken = places.counts.lock().unwrap();
        assert!(taken.total == 0 && taken.by_identity.is_empty());
    }

    #[test]
    fn a_share_grows_up_to_its_limit_and_is_given_back_whole() {
        let bytes = Shares::new(100, 2);
        let mut a = bytes.empty_share("a");
        assert!(a.grow(30) && a.grow(20) && !a.grow(1));
        let mut b = bytes.empty_share("b");
        assert!(!b.grow(51) && b.grow(50));
        assert!(bytes.is_used_up("a") && bytes.is_used_up("c"), "the total is used up too");
        drop(a);
        assert!(!bytes.is_used_up("a") && bytes.is_used_up("b"));
        assert!(bytes.empty_share("a").grow(50) && !bytes.empty_share("b").grow(1));
    }

    /// Finding 13 of the security review: what counted beyond an identity's part used up those of others.
    #[test]
    fn finding_13_an_identity_takes_nothing_beyond_its_part() {
        let bytes = Shares::new(100, 4);
        let mut flood = bytes.empty_share("flood");
        assert_eq!((flood.grow_to_limit(20), flood.grow_to_limit(500)), (0, 495));
        assert!(bytes.is_used_up("flood") && flood.grow_to_limit(1) == 1);
        let mut calm = bytes.empty_share("calm");
        assert!(!bytes.is_used_up("calm") && calm.grow(25));
        drop(flood);
        assert!(bytes.empty_share("flood").grow(25));
    }

    #[test]
    fn without_identities_one_caller_may_use_all_slots() {
        let places = Shares::new(6, 1);
        let all: Vec<_> = (0..9).filter_map(|_| places.take("local")).collect();
        assert_eq!(all.len(), 6);
    }
}
