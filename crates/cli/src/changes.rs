//! What happened between two looks at a store.
//!
//! A store that is not a daemon tells nobody what happens in it. Looking again and comparing shows every change that
//! lasts longer than the pause between two looks; what comes and goes in between is not seen.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::store::Lease;

/// Stores count in milliseconds, and their clock may run a little slower than ours.
const SLACK: Duration = Duration::from_millis(10);

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It was free and is held.
    Acquired,
    /// It is held by another grant than before.
    Passed,
    /// Its lease was extended.
    Renewed,
    /// Its lease is gone: released, run out, or broken.
    Freed,
    /// More or fewer wait for it.
    Waiters,
}

impl Kind {
    /// As it is printed.
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

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// What happened.
    pub(crate) kind: Kind,
    /// The lease as it is now, or as it was last seen.
    pub(crate) lease: Lease,
}

/// What was seen last.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    seen: BTreeMap<String, Lease>,
    /// When the last look was answered.
    answered: Option<Moment>,
}

impl Looks {
    /// Compares with what was seen before; the first look changes nothing unless `first` counts what is there as new.
    ///
    /// The store looked at some moment between `sent` and `answered`. So at least the time from the last answer to this
    /// question has passed between two looks, however slow either was: who has more left than that allows has renewed.
    pub(crate) fn look(
        &mut self,
        leases: &[Lease],
        sent: Moment,
        answered: Moment,
        first: bool,
    ) -> Vec<Change> {
        let quiet = self.answered.is_none() && !first;
        let passed = self.answered.map_or(Duration::ZERO, |last| sent.since(last));
        let mut before = std::mem::take(&mut self.seen);
        let mut changes = Vec::new();
        for lease in leases {
            let old = before.remove(lease.name.as_str());
            if let Some(kind) = change(old.as_ref(), lease, passed) {
                let lease = lease.clone();
                changes.push(Change { kind, lease });
            }
            self.seen.insert(lease.name.to_string(), lease.clone());
        }
        changes.extend(before.into_values().map(|lease| Change {
            kind: Kind::Freed,
            lease,
        }));
        self.answered = Some(answered);
        if quiet {
            changes.clear();
        }
        changes
    }
}

fn change(old: Option<&Lease>, new: &Lease, passed: Duration) -> Option<Kind> {
    let Some(old) = old else {
        return Some(Kind::Acquired);
    };
    if (old.fence, &old.holder) != (new.fence, &new.holder) {
        return Some(Kind::Passed);
    }
    let extended = match (old.remaining, new.remaining) {
        (Some(old), Some(new)) => new > old.saturating_sub(passed) + SLACK,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if extended {
        return Some(Kind::Renewed);
    }
    (old.waiters != new.waiters).then_some(Kind::Waiters)
}

#[cfg(test)]
mod tests {
    use leasehold::{Fence, Name};

    use super::*;

    fn lease(fence: u64, left: u64) -> Lease {
        Lease {
            name: Name::new("a").unwrap(),
            holder: "h".into(),
            class: None,
            fence: Fence::new(fence),
            remaining: Some(Duration::from_millis(left)),
            age: None,
            waiters: Some(0),
        }
    }

    #[test]
    fn each_change_has_its_name() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let mut looks = Looks::default();
        let mut kinds = |leases: &[Lease], millis| -> Vec<Kind> {
            let changes = looks.look(leases, at(millis), at(millis), false);
            changes.iter().map(|change| change.kind).collect()
        };
        assert_eq!(kinds(&[], 0), []);
        assert_eq!(kinds(&[lease(1, 1000)], 100), [Kind::Acquired]);
        assert_eq!(kinds(&[lease(1, 900)], 200), []);
        assert_eq!(kinds(&[lease(1, 1000)], 300), [Kind::Renewed]);
        assert_eq!(kinds(&[lease(2, 900)], 400), [Kind::Passed]);
        let waited = Lease {
            waiters: Some(3),
            ..lease(2, 800)
        };
        assert_eq!(kinds(&[waited], 500), [Kind::Waiters]);
        assert_eq!(kinds(&[], 600), [Kind::Freed]);
    }

    #[test]
    fn what_is_there_at_the_first_look_is_news_only_if_asked_for() {
        let now = Moment::from_nanos(1);
        assert_eq!(Looks::default().look(&[lease(1, 1)], now, now, false), []);
        assert_eq!(Looks::default().look(&[lease(1, 1)], now, now, true).len(), 1);
    }

    /// The second question was sent at 100 and answered only at 900, but the store had looked at once.
    #[test]
    fn a_slow_answer_is_no_renewal() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let mut looks = Looks::default();
        looks.look(&[lease(1, 1000)], at(0), at(0), false);
        assert_eq!(looks.look(&[lease(1, 900)], at(100), at(900), false), []);
        assert_eq!(looks.look(&[lease(1, 1000)], at(950), at(960), false).len(), 1);
    }
}
