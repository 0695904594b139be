//! Is the store worth asking now?
//!
//! After repeated transport errors, acquires are answered at once instead of each waiting out a time-out; one probe
//! at a time finds recovery. Renewals and releases of existing holds never ask here. Pure: the caller brings the time.

use std::time::Duration;

use crate::clock::Moment;

/// Consecutive failures that open it.
const THRESHOLD: u32 = 5;
/// The first pause before a probe; doubles with every failed one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What an acquire may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Ask the store.
    Pass,
    /// Ask the store, as the one that finds out whether it is back.
    Probe,
    /// Do not ask before then.
    Refuse {
        /// The next probe.
        until: Moment,
    },
}

/// The state of the way to the store.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    pause: Duration,
    /// Open until then.
    until: Option<Moment>,
    probing: bool,
    /// What the store said last, for those who are refused.
    why: String,
}

impl Breaker {
    /// May an acquire ask?
    pub fn admit(&mut self, now: Moment) -> Admission {
        match self.until {
            None => Admission::Pass,
            Some(until) if self.probing || now < until => Admission::Refuse { until },
            Some(_) => {
                self.probing = true;
                Admission::Probe
            }
        }
    }

    /// The store answered something, to anyone: it is there.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// The store did not answer; `probe` says that it was the probe's ask. While it is open, only the probe tells anything
    /// new: others were on their way before.
    pub fn failed(&mut self, now: Moment, probe: bool) {
        if self.until.is_some() && !probe {
            return;
        }
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        if self.failures >= THRESHOLD {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.until = Some(now + self.pause);
        }
    }

    /// An ask that is not the probe's came to nobody knows what, and will be asked again to learn that. True: this opened the
    /// breaker, and whoever asks again is the probe now. Refused, it could only end without an answer although the store is there.
    pub fn doubted(&mut self, now: Moment) -> bool {
        if self.until.is_some() {
            return false;
        }
        self.failed(now, false);
        self.probing = self.until.is_some();
        self.probing
    }

    /// Why it did not answer: whoever is refused later wants to know that, and not that it was refused.
    pub fn because(&mut self, why: &str) {
        why.clone_into(&mut self.why);
    }

    /// What was last said about why.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The probe ended without telling whether the store is back: the next acquire probes.
    pub fn abandoned(&mut self) {
        self.probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn opens_after_repeated_failures_only() {
        let mut breaker = Breaker::default();
        for _ in 0..THRESHOLD - 1 {
            breaker.failed(at(0), false);
            assert_eq!(breaker.admit(at(0)), Admission::Pass);
        }
        breaker.failed(at(0), false);
        assert_eq!(breaker.admit(at(0)), Admission::Refuse { until: at(250) });
    }

    #[test]
    fn one_success_in_between_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            (0..THRESHOLD - 1).for_each(|_| breaker.failed(at(0), false));
            breaker.succeeded();
        }
        assert_eq!(breaker.admit(at(0)), Admission::Pass);
    }

    #[test]
    fn one_probe_at_a_time() {
        let mut breaker = Breaker::default();
        (0..THRESHOLD).for_each(|_| breaker.failed(at(0), false));
        assert_eq!(breaker.admit(at(300)), Admission::Probe);
        assert!(matches!(breaker.admit(at(300)), Admission::Refuse { .. }));
        breaker.abandoned();
        assert_eq!(breaker.admit(at(300)), Admission::Probe);
        breaker.failed(at(300), true);
        assert_eq!(breaker.admit(at(500)), Admission::Refuse { until: at(800) });
        assert_eq!(breaker.admit(at(800)), Admission::Probe);
        breaker.succeeded();
        assert_eq!(breaker.admit(at(800)), Admission::Pass);
    }

    #[test]
    fn the_pause_grows_to_a_bound() {
        let mut breaker = Breaker::default();
        (0..THRESHOLD).for_each(|_| breaker.failed(at(0), false));
        let mut now = at(250);
        for pause in [500, 1_000, 2_000, 4_000, 5_000, 5_000] {
            assert_eq!(breaker.admit(now), Admission::Probe);
            breaker.failed(now, true);
            let until = now + Duration::from_millis(pause);
            assert_eq!(breaker.admit(now), Admission::Refuse { until });
            now = until;
        }
    }

    /// Whoever opens it with an unknown ask learns what became of it, as its probe; nobody else becomes one that way.
    #[test]
    fn an_unknown_ask_that_opens_it_is_followed_by_the_probe() {
        let mut breaker = Breaker::default();
        (1..THRESHOLD).for_each(|_| assert!(!breaker.doubted(at(0))));
        assert_eq!(breaker.admit(at(0)), Admission::Pass);
        assert!(breaker.doubted(at(0)));
        assert!(!breaker.doubted(at(0)), "there is one already");
        assert_eq!(breaker.admit(at(300)), Admission::Refuse { until: at(250) });
        breaker.failed(at(300), true);
        assert_eq!(breaker.admit(at(799)), Admission::Refuse { until: at(800) });
        assert_eq!(breaker.admit(at(800)), Admission::Probe);
        assert!(!breaker.doubted(at(800)), "an ask from before");
    }

    /// Asks that were on their way when it opened fail one after the other. That is no news.
    #[test]
    fn only_the_probe_says_how_the_probe_went() {
        let mut breaker = Breaker::default();
        (0..THRESHOLD).for_each(|_| breaker.failed(at(0), false));
        (0..50).for_each(|_| breaker.failed(at(100), false));
        assert_eq!(breaker.admit(at(200)), Admission::Refuse { until: at(250) });
        assert_eq!(breaker.admit(at(250)), Admission::Probe);
        breaker.failed(at(260), false);
        assert_eq!(
            breaker.admit(at(270)),
            Admission::Refuse { until: at(250) },
            "the probe is still on its way"
        );
        breaker.failed(at(280), true);
        assert_eq!(breaker.admit(at(779)), Admission::Refuse { until: at(780) });
        assert_eq!(breaker.admit(at(780)), Admission::Probe);
    }
}
