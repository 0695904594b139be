//! Differences between two listings of a store.
//!
//! A plain store sends no events. Comparing listings shows every change that lasts longer than the poll
//! interval; shorter changes are missed.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::store::Lease;

// Stores count in milliseconds, and their clock may run slightly slower than ours.
const CLOCK_SLACK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Acquired,
    /// Another grant holds the name: the fence or the holder differs.
    Passed,
    Renewed,
    /// The lease was released, expired, or was broken.
    Freed,
    /// The number of waiters changed.
    Waiters,
}

impl ChangeKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Passed => "passed",
            Self::Renewed => "renewed",
            Self::Freed => "freed",
            Self::Waiters => "waiters",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    /// The lease as it is now; for [`ChangeKind::Freed`], as it was last seen.
    pub(crate) lease: Lease,
}

/// The leases of the last listing, to compare the next one with.
#[derive(Debug, Default)]
pub(crate) struct LeaseTracker {
    known: BTreeMap<String, Lease>,
    last_answer: Option<Moment>,
}

impl LeaseTracker {
    /// Compares a listing with the previous one.
    ///
    /// The first listing yields no changes unless `first` is set, which reports every lease as acquired.
    pub(crate) fn update(
        &mut self,
        leases: &[Lease],
        sent: Moment,
        answered: Moment,
        first: bool,
    ) -> Vec<Change> {
        // The store read its state at some moment between `sent` and `answered`. At least the time from the
        // last response to this request has passed; a lease with more time left than that was renewed.
        let quiet = self.last_answer.is_none() && !first;
        let passed = self.last_answer.map_or(Duration::ZERO, |last| sent.since(last));
        let mut before = std::mem::take(&mut self.known);
        let mut changes = Vec::new();
        for lease in leases {
            let old = before.remove(lease.name.as_str());
            if let Some(kind) = classify_change(old.as_ref(), lease, passed) {
                let lease = lease.clone();
                changes.push(Change { kind, lease });
            }
            self.known.insert(lease.name.to_string(), lease.clone());
        }
        changes.extend(before.into_values().map(|lease| Change { kind: ChangeKind::Freed, lease }));
        self.last_answer = Some(answered);
        if quiet {
            changes.clear();
        }
        changes
    }
}

fn classify_change(old: Option<&Lease>, new: &Lease, passed: Duration) -> Option<ChangeKind> {
    let Some(old) = old else {
        return Some(ChangeKind::Acquired);
    };
    if (old.fence, &old.holder) != (new.fence, &new.holder) {
        return Some(ChangeKind::Passed);
    }
    let extended = match (old.remaining, new.remaining) {
        (Some(old), Some(new)) => new > old.saturating_sub(passed) + CLOCK_SLACK,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if extended {
        return Some(ChangeKind::Renewed);
    }
    (old.waiters != new.waiters).then_some(ChangeKind::Waiters)
}

#[cfg(test)]
mod tests {
    use leasehold::{Fence, Name};

    use super::*;

    fn lease(fence: u64, left: u64) -> Lease {
        Lease::new(Name::new("a").unwrap(), "h")
            .with_fence(Fence::new(fence))
            .with_remaining(Duration::from_millis(left))
            .with_waiters(0)
    }

    #[test]
    fn each_change_is_classified() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let mut looks = LeaseTracker::default();
        let mut kinds = |leases: &[Lease], millis| -> Vec<ChangeKind> {
            let changes = looks.update(leases, at(millis), at(millis), false);
            changes.iter().map(|change| change.kind).collect()
        };
        assert_eq!(kinds(&[], 0), []);
        assert_eq!(kinds(&[lease(1, 1000)], 100), [ChangeKind::Acquired]);
        assert_eq!(kinds(&[lease(1, 900)], 200), []);
        assert_eq!(kinds(&[lease(1, 1000)], 300), [ChangeKind::Renewed]);
        assert_eq!(kinds(&[lease(2, 900)], 400), [ChangeKind::Passed]);
        let waited = lease(2, 800).with_waiters(3);
        assert_eq!(kinds(&[waited], 500), [ChangeKind::Waiters]);
        assert_eq!(kinds(&[], 600), [ChangeKind::Freed]);
    }

    #[test]
    fn the_first_listing_yields_changes_only_on_request() {
        let now = Moment::from_nanos(1);
        assert_eq!(LeaseTracker::default().update(&[lease(1, 1)], now, now, false), []);
        assert_eq!(LeaseTracker::default().update(&[lease(1, 1)], now, now, true).len(), 1);
    }

    // The second request was sent at 100 and answered at 900, but the store had read its state at once.
    #[test]
    fn a_slow_response_is_no_renewal() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let mut looks = LeaseTracker::default();
        looks.update(&[lease(1, 1000)], at(0), at(0), false);
        assert_eq!(looks.update(&[lease(1, 900)], at(100), at(900), false), []);
        assert_eq!(looks.update(&[lease(1, 1000)], at(950), at(960), false).len(), 1);
    }
}
