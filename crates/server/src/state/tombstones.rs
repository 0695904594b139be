//! Counts the tombstones that each identity has made for tokens that were neither held nor queued here.
//!
//! Such a token may be one whose acquire is still on its way, so the tombstone is needed. It may also
//! be invented, and then each release would cost the store a row.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;

use crate::problem::Refusal;

/// The expiry times of such tombstones, by identity.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    by_owner: Mutex<HashMap<String, BinaryHeap<Reverse<Moment>>>>,
}

impl Tombstones {
    /// Counts a tombstone that the store keeps for `keep`.
    pub(crate) fn add(&self, who: &str, keep: Duration, quota: usize, now: Moment) -> Result<(), Refusal> {
        // Not counted for an identity without a limit: its heap would have none either.
        if quota == usize::MAX {
            return Ok(());
        }
        let mut by_owner = self.by_owner.lock().unwrap_or_else(PoisonError::into_inner);
        by_owner.retain(|owner, expiries| {
            while expiries.peek().is_some_and(|Reverse(expiry)| *expiry <= now) {
                expiries.pop();
            }
            !expiries.is_empty() || owner == who
        });
        let expiries = by_owner.entry(who.to_owned()).or_default();
        if expiries.len() >= quota {
            return Err(Refusal::quota_reached("tombstones", quota));
        }
        expiries.push(Reverse(now + keep));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_tombstones_do_not_count() {
        let (tombstones, now) = (Tombstones::default(), Moment::from_nanos(1));
        let add = |who, seconds, now| tombstones.add(who, Duration::from_secs(seconds), 2, now).is_ok();
        assert!(add("a", 60, now) && add("a", 10, now) && !add("a", 1, now) && add("b", 1, now));
        let later = now + Duration::from_secs(10);
        assert!(add("a", 1, later) && !add("a", 1, later));
        assert_eq!(tombstones.by_owner.lock().unwrap().len(), 1, "an owner without tombstones is forgotten");
    }
}
