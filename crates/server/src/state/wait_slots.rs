//! Slots for requests that wait. There are fewer slots than connections, so that renewals always
//! find a connection.
//!
//! One identity gets at most half of the slots, so that others find one too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// All wait slots of a daemon.
#[derive(Debug)]
pub(crate) struct WaitSlots {
    max_slots: usize,
    /// The maximum for one identity.
    max_per_identity: usize,
    counts: Mutex<SlotCounts>,
}

#[derive(Debug, Default)]
struct SlotCounts {
    total: usize,
    /// Slots per identity. Entries at zero are removed, so the map cannot grow without bound.
    by_identity: HashMap<String, usize>,
}

/// One wait slot, freed when dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub(crate) struct WaitSlot {
    slots: Arc<WaitSlots>,
    identity: String,
}

impl WaitSlots {
    /// `most` slots; half of them per identity if identities are distinguished.
    pub(crate) fn new(most: usize, apart: bool) -> Arc<Self> {
        Arc::new(Self {
            max_slots: most,
            // Without identities all callers are one principal, and a share would only halve the
            // capacity.
            max_per_identity: if apart { most.div_ceil(2) } else { most },
            counts: Mutex::default(),
        })
    }

    /// Takes a slot of this identity's share, if one is free.
    pub(crate) fn take(self: &Arc<Self>, who: &str) -> Option<WaitSlot> {
        let mut taken = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let had = taken.by_identity.get(who).copied().unwrap_or(0);
        // Both limits: many identities together must not exceed the total either.
        if taken.total >= self.max_slots || had >= self.max_per_identity {
            return None;
        }
        taken.total += 1;
        taken.by_identity.insert(who.to_owned(), had + 1);
        Some(WaitSlot { slots: Arc::clone(self), identity: who.to_owned() })
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.counts.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total = taken.total.saturating_sub(1);
        if let Some(had) = taken.by_identity.get_mut(&self.identity) {
            *had -= 1;
            if *had == 0 {
                taken.by_identity.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_gets_half_of_the_slots_and_frees_them() {
        let places = WaitSlots::new(6, true);
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
    fn without_identities_one_caller_may_use_all_slots() {
        let places = WaitSlots::new(6, false);
        let all: Vec<_> = (0..9).filter_map(|_| places.take("local")).collect();
        assert_eq!(all.len(), 6);
    }
}
