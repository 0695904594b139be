//! What came of the requests and connections of an attack.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a request or a connection of an attack ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// The daemon did the work, or keeps the connection.
    Effective,
    /// A bound of the daemon refused it, or cut its connection.
    Bounded,
    /// Neither: the attack has not reached what it attacks.
    Failed(String),
}

impl RequestEnd {
    /// `may_be_cut`: the daemon ends connections of this kind to keep its bounds.
    pub(super) fn of_error(error: &io::Error, may_be_cut: bool) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let cut = matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
        if may_be_cut && cut { Self::Bounded } else { Self::Failed(error.to_string()) }
    }
}

/// Counts. They are kept when the attack is cut off.
#[derive(Debug, Default)]
pub(super) struct AttackTally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    effective: usize,
    bounded: usize,
    failed: BTreeMap<String, usize>,
}

impl AttackTally {
    pub(super) fn count(&self, end: RequestEnd) {
        let mut counts = self.lock();
        match end {
            RequestEnd::Effective => counts.effective += 1,
            RequestEnd::Bounded => counts.bounded += 1,
            RequestEnd::Failed(why) => *counts.failed.entry(why).or_default() += 1,
        }
    }

    /// Why the attack shows nothing, if it does not. Of `count` requests or connections, nearly all must have
    /// ended as expected, and `least_percent` of them must have had their effect.
    pub(super) fn shortfall(&self, count: usize, least_percent: usize) -> Option<String> {
        let counts = self.lock();
        let least = (count * least_percent).div_ceil(100).max(1);
        if counts.effective < least {
            return Some(format!("{counts}; at least {least} of {count} must have an effect"));
        }
        // A few may fail: a connection can be cut between two of its requests.
        let failed: usize = counts.failed.values().sum();
        (failed > count / 100).then(|| format!("{counts}; of {count}, too many failed"))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for AttackTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} had an effect, {} met a bound", self.effective, self.bounded)?;
        self.failed.iter().try_for_each(|(why, times)| write!(f, ", {times} failed ({why})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flood that is answered with 401 or 404, or not at all, is no attack.
    #[test]
    fn finding_01_an_attack_without_effect_shows_nothing() {
        let tally = AttackTally::default();
        (0..200).for_each(|_| tally.count(RequestEnd::Failed("status 401".to_owned())));
        assert!(tally.shortfall(200, 99).unwrap().contains("200 failed (status 401)"));
        // Bounds alone do not show that anything got through.
        let tally = AttackTally::default();
        (0..200).for_each(|_| tally.count(RequestEnd::Bounded));
        assert!(tally.shortfall(200, 0).is_some());
        tally.count(RequestEnd::Effective);
        assert_eq!(tally.shortfall(200, 0), None);
        (0..3).for_each(|_| tally.count(RequestEnd::Failed("status 404".to_owned())));
        assert!(tally.shortfall(200, 0).is_some());
        let tally = AttackTally::default();
        assert!(tally.shortfall(200, 80).is_some());
        (0..160).for_each(|_| tally.count(RequestEnd::Effective));
        assert_eq!(tally.shortfall(200, 80), None);
    }

    #[test]
    fn a_cut_is_a_bound_only_where_the_daemon_has_one() {
        let cut = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(RequestEnd::of_error(&cut, true), RequestEnd::Bounded);
        assert!(matches!(RequestEnd::of_error(&cut, false), RequestEnd::Failed(_)));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(matches!(RequestEnd::of_error(&refused, true), RequestEnd::Failed(_)));
    }
}
