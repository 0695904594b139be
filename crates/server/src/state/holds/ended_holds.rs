//! The memory of how recent holds ended, by owner.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::Moment;

use super::refusal::hold_over;
use super::registry::HoldKey;
use crate::problem::Refusal;

// A client that was away this long can still learn why its hold ended.
const ENDED_HOLD_RETENTION: Duration = Duration::from_secs(600);
// Bounds memory. Beyond it an owner's oldest ends are forgotten, and never those of another.
const MAX_ENDED_PER_OWNER: usize = 10_000;
// Bounds the memory of owners that are not listed in advance, such as client certificates.
const MAX_ENDED_OWNERS: usize = 1024;

/// The ended holds that are still remembered.
#[derive(Debug, Default)]
pub(super) struct EndedHolds {
    by_owner: HashMap<String, OwnerEnds>,
}

#[derive(Debug, Default)]
struct OwnerEnds {
    by_id: HashMap<String, EndedHold>,
    /// The ids and when to forget them, oldest first.
    order: VecDeque<(Moment, String)>,
}

/// A hold that has ended.
#[derive(Debug, Clone)]
pub(super) struct EndedHold {
    pub(super) name: Name,
    reason: String,
    until: Moment,
}

impl EndedHolds {
    pub(super) fn get(&self, key: &HoldKey) -> Option<&EndedHold> {
        self.by_owner.get(&key.owner)?.by_id.get(&key.id)
    }

    pub(super) fn remember(&mut self, key: &HoldKey, name: Name, reason: &str, now: Moment) {
        if !self.by_owner.contains_key(&key.owner) && self.by_owner.len() >= MAX_ENDED_OWNERS {
            let oldest =
                self.by_owner.iter().min_by_key(|(_, ends)| ends.order.back().map(|(until, _)| *until));
            if let Some(owner) = oldest.map(|(owner, _)| owner.clone()) {
                self.by_owner.remove(&owner);
            }
        }
        let ends = self.by_owner.entry(key.owner.clone()).or_default();
        let until = now + ENDED_HOLD_RETENTION;
        while ends.order.len() >= MAX_ENDED_PER_OWNER {
            ends.forget_oldest();
        }
        ends.order.push_back((until, key.id.clone()));
        ends.by_id.insert(key.id.clone(), EndedHold { name, reason: reason.to_owned(), until });
    }

    /// Forgets what ended too long ago.
    pub(super) fn forget_old(&mut self, now: Moment) {
        self.by_owner.retain(|_, ends| {
            while ends.order.front().is_some_and(|(until, _)| *until <= now) {
                ends.forget_oldest();
            }
            !ends.order.is_empty()
        });
    }
}

impl OwnerEnds {
    fn forget_oldest(&mut self) {
        let Some((until, id)) = self.order.pop_front() else { return };
        // An id that was remembered again meanwhile has a later end.
        if self.by_id.get(&id).is_some_and(|over| over.until <= until) {
            self.by_id.remove(&id);
        }
    }
}

impl EndedHold {
    pub(super) fn refusal(&self) -> Refusal {
        hold_over(&self.name, &self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 22 of the security review: once the memory was full, an ended id was not remembered.
    #[test]
    fn finding_22_ended_ids_are_remembered_per_owner() {
        let (mut ended, now) = (EndedHolds::default(), Moment::from_nanos(1));
        let name = Name::new("job:1").unwrap();
        let mut end =
            |owner: &str, id: &str, now| ended.remember(&HoldKey::new(owner, id), name.clone(), "x", now);
        end("calm", "mine", now);
        (0..2 * MAX_ENDED_PER_OWNER).for_each(|number| end("flood", &format!("{number}"), now));
        end("flood", "last", now);
        end("late", "mine", now);
        let known = |ended: &EndedHolds, owner, id| ended.get(&HoldKey::new(owner, id)).is_some();
        assert!(known(&ended, "calm", "mine") && known(&ended, "late", "mine"));
        assert!(known(&ended, "flood", "last") && !known(&ended, "flood", "0"));
        assert_eq!(ended.by_owner["flood"].by_id.len(), MAX_ENDED_PER_OWNER);
        ended.forget_old(now + ENDED_HOLD_RETENTION);
        assert!(ended.by_owner.is_empty());
    }
}
