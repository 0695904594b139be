//! Computes the TTL from the evidence.
//!
//! There are two plans. *Covering*: `ttl = p99 + jitter + guard`, so that work at its 99th
//! percentile ends within one lease even if no renewal succeeds. *Renewing*: the shortest lease in
//! which one renewal may time out and its retry is still confirmed before the deadline, plus the
//! guard. Work may then take any time, and a crashed holder is replaced sooner.

use std::time::Duration;

use leasehold_core::deadline::usable_time;
use leasehold_core::policy::Class;

use crate::evidence::{Evidence, InsufficientData};
use crate::sample::BeyondHistogram;

// A shorter timeout would retry renewals that are only a little slow.
const MIN_RENEW_TIMEOUT: Duration = Duration::from_millis(50);
// The default guard is a tenth of the p99, but not less than this.
const MIN_GUARD: Duration = Duration::from_millis(50);
// Waiters poll at least this often, so they find a free name within it.
const MAX_WAITER_POLL: Duration = Duration::from_secs(1);
// The policy loader accepts TTLs from 100 ms to 24 h.
const MIN_TTL: Duration = Duration::from_millis(100);

/// What the operator knows or requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The p99 of the held time; computed from the evidence if not given.
    pub p99: Option<Duration>,
    /// Time for network, slow answers of the store and pauses; computed from the evidence if not
    /// given.
    pub jitter: Option<Duration>,
    /// Safety margin on top; a tenth of the p99 if not given.
    pub guard: Option<Duration>,
    /// Time the work needs to stop; the default of `leasehold run` if not given.
    pub stop_grace: Option<Duration>,
    /// Time for which a name stays locked after an unclean loss.
    pub lock_delay: Duration,
    /// Longest allowed time from a holder's crash to the next owner's first step.
    pub takeover_slo: Option<Duration>,
    /// The TTL in force, to compare with the advised one.
    pub current: Option<Duration>,
}

impl Requirements {
    /// The stop grace under this TTL.
    fn grace(&self, ttl: Duration) -> Duration {
        self.stop_grace.unwrap_or_else(|| Class::process_grace(ttl))
    }
}

/// A TTL and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The lease's time to live.
    pub ttl: Duration,
    /// Interval between renewals.
    pub every: Duration,
    /// Timeout of one renewal.
    pub timeout: Duration,
    /// Time for retries and stalls between a renewal's due time and the deadline.
    pub margin: Duration,
    /// Longest time from a crash to the next owner.
    pub takeover: Duration,
}

impl Plan {
    /// The plan for this TTL, with a renewal every third of it.
    #[must_use]
    pub fn of(ttl: Duration, timeout: Duration, requirements: &Requirements) -> Self {
        let every = ttl / 3;
        let usable = usable_time(ttl, Class::default_drift(ttl), requirements.grace(ttl));
        Self {
            ttl,
            every,
            timeout,
            margin: usable.saturating_sub(every),
            takeover: ttl + requirements.lock_delay + MAX_WAITER_POLL,
        }
    }
}

/// Whether the takeover target can be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slo {
    /// The required time from a crash to the next owner.
    pub target: Duration,
    /// The takeover time under the TTL in force, if that was given.
    pub current: Option<Duration>,
    /// How to meet the target.
    pub remedy: SloRemedy,
}

/// How to meet a takeover target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SloRemedy {
    /// The covering plan meets it.
    Covering,
    /// Only the shorter, renewing plan does.
    Renewing,
    /// No TTL that the recorded delays permit meets it. Make the delays shorter, or detect a dead
    /// holder by other means.
    FastFail,
}

/// The advised values and their effects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The 99th percentile of the held time, on which the advice is based.
    pub p99: Duration,
    /// The median, for comparison.
    pub p50: Duration,
    /// The 95th percentile, for comparison.
    pub p95: Duration,
    /// Time for network, slow answers of the store and pauses.
    pub jitter: Duration,
    /// Safety margin on top.
    pub guard: Duration,
    /// The plan in which work at its p99 ends within one lease.
    pub covering: Plan,
    /// The plan with the shortest lease in which a retry fits.
    pub renewing: Plan,
    /// The result for the takeover target, if one was given.
    pub slo: Option<Slo>,
}

/// Why no advice can be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdviceError {
    /// Too few holds were recorded.
    #[error(transparent)]
    TooLittle(#[from] InsufficientData),
    /// The percentile is beyond the histogram's largest bucket.
    #[error("the percentile is {0}")]
    Beyond(#[from] BeyondHistogram),
    /// The computed TTL is longer than 24 h.
    #[error(
        "the sum is {0:?}, and a lease lives 24h at most\nsplit the work, or let renewals carry it: set ttl by hand"
    )]
    TooLong(Duration),
}

impl Advice {
    /// Computes both plans.
    ///
    /// # Errors
    /// There is too little data, a percentile is beyond the histogram, or the TTL would be too
    /// long.
    pub fn from(evidence: &Evidence, requirements: &Requirements) -> Result<Self, AdviceError> {
        let p99 = match requirements.p99 {
            Some(p99) => p99,
            None => {
                evidence.check_enough()?;
                evidence.held.quantile(0.99)?
            }
        };
        let jitter = match requirements.jitter {
            Some(jitter) => jitter,
            // Added, not the maximum: one slow answer and one pause may hit the same renewal.
            None => evidence.store.quantile(0.999)?.saturating_add(evidence.stalls.quantile(0.999)?),
        };
        let guard = requirements.guard.unwrap_or_else(|| (p99 / 10).max(MIN_GUARD));
        let timeout = jitter.max(MIN_RENEW_TIMEOUT);
        let covering = check_max_ttl(p99.saturating_add(jitter).saturating_add(guard))?;
        // Needed: ttl - (20 ms + ttl/100) - stop_grace - ttl/3 >= two timeouts and the guard. The
        // default grace grows with the TTL, so the TTL is computed repeatedly. That ends, because
        // the grace grows by a sixth of the increase and stops at 5 s.
        let without = timeout * 2 + guard + Duration::from_millis(20);
        let mut renewing = Duration::ZERO;
        loop {
            // Checked before the multiplication, which would overflow with an absurd grace.
            let needed = check_max_ttl(requirements.grace(renewing).saturating_add(without))?;
            let longer = check_max_ttl(round_up_two_digits(needed.mul_f64(1.0 / (1.0 - 1.0 / 3.0 - 0.01))))?;
            if longer <= renewing {
                break;
            }
            renewing = longer;
        }
        let covering = Plan::of(
            covering.max(MIN_TTL),
            timeout.min(covering / 6).max(Duration::from_millis(1)),
            requirements,
        );
        let renewing = Plan::of(renewing.max(MIN_TTL), timeout, requirements);
        let slo = requirements.takeover_slo.map(|target| Slo {
            target,
            current: requirements.current.map(|ttl| ttl + requirements.lock_delay + MAX_WAITER_POLL),
            remedy: if covering.takeover <= target {
                SloRemedy::Covering
            } else if renewing.takeover <= target {
                SloRemedy::Renewing
            } else {
                SloRemedy::FastFail
            },
        });
        Ok(Self {
            p99,
            p50: evidence.held.quantile(0.5).unwrap_or(p99),
            p95: evidence.held.quantile(0.95).unwrap_or(p99),
            jitter,
            guard,
            covering,
            renewing,
            slo,
        })
    }

    /// The plan to use: the covering one, unless the renewing one is longer or only that one meets
    /// the takeover target.
    #[must_use]
    pub fn recommended(&self) -> Plan {
        match self.slo.map(|slo| slo.remedy) {
            Some(SloRemedy::Renewing | SloRemedy::FastFail) => self.renewing,
            // The work is so short that renewals do not fit in a covering lease.
            _ if self.covering.ttl < self.renewing.ttl => self.renewing,
            _ => self.covering,
        }
    }
}

fn check_max_ttl(ttl: Duration) -> Result<Duration, AdviceError> {
    if ttl > Duration::from_secs(24 * 3600) {
        return Err(AdviceError::TooLong(ttl));
    }
    Ok(ttl)
}

/// Rounds up to two significant digits, as a person would write it.
fn round_up_two_digits(time: Duration) -> Duration {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let mut grain = 1;
    while millis / grain >= 100 {
        grain *= 10;
    }
    Duration::from_millis(millis.div_ceil(grain) * grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn example_work() -> (Evidence, Requirements) {
        let evidence = Evidence::of_held((0..1000).map(|at| if at < 980 { secs(5) } else { secs(18) }));
        let requirements = Requirements {
            jitter: Some(secs(4)),
            guard: Some(secs(2)),
            stop_grace: Some(Duration::ZERO),
            ..Requirements::default()
        };
        (evidence, requirements)
    }

    #[test]
    fn eighteen_four_and_two_are_twenty_four_renewed_every_eight() {
        let (evidence, requirements) = example_work();
        let advice = Advice::from(&evidence, &requirements).unwrap();
        assert_eq!((advice.p50, advice.p95, advice.p99), (secs(5), secs(5), secs(18)));
        assert_eq!((advice.covering.ttl, advice.covering.every), (secs(24), secs(8)));
        assert_eq!(advice.recommended(), advice.covering);
    }

    #[test]
    fn sixty_seconds_cannot_meet_a_takeover_of_thirty_but_the_advice_can() {
        let (evidence, wishes) = example_work();
        let wishes = Requirements { takeover_slo: Some(secs(30)), current: Some(secs(60)), ..wishes };
        let slo = Advice::from(&evidence, &wishes).unwrap().slo.unwrap();
        assert_eq!(slo.current, Some(secs(61)));
        assert_eq!(slo.remedy, SloRemedy::Covering);
        // A target of 20 s needs the shorter lease, one of 5 s another mechanism.
        let at = |target| Requirements { takeover_slo: Some(target), ..wishes.clone() };
        let shorter = Advice::from(&evidence, &at(secs(20))).unwrap();
        assert_eq!(shorter.slo.unwrap().remedy, SloRemedy::Renewing);
        assert_eq!(shorter.recommended(), shorter.renewing);
        let none = Advice::from(&evidence, &at(secs(5))).unwrap();
        assert_eq!(none.slo.unwrap().remedy, SloRemedy::FastFail);
    }

    #[test]
    fn the_renewing_plan_is_the_shortest_in_which_a_retry_fits() {
        let (evidence, requirements) = example_work();
        let plan = Advice::from(&evidence, &requirements).unwrap().renewing;
        assert_eq!(plan.ttl, secs(16));
        assert!(plan.margin >= plan.timeout * 2 + secs(2), "{plan:?}");
        let shorter = Plan::of(secs(15), plan.timeout, &requirements);
        assert!(shorter.margin < plan.timeout * 2 + secs(2), "{shorter:?}");
    }

    #[test]
    fn measured_jitter_is_one_slow_answer_and_one_pause() {
        let mut evidence = Evidence::of_held([secs(10); 400]);
        evidence.store = crate::Sample::of([Duration::from_millis(30); 500]);
        evidence.stalls = crate::Sample::of([Duration::from_millis(700); 500]);
        let advice = Advice::from(&evidence, &Requirements::default()).unwrap();
        assert_eq!(advice.jitter, Duration::from_millis(730));
        assert_eq!(advice.guard, secs(1));
    }

    #[test]
    fn short_work_gets_a_lease_that_renewals_fit_in() {
        let evidence = Evidence::of_held([Duration::from_millis(2); 400]);
        let advice = Advice::from(&evidence, &Requirements::default()).unwrap();
        assert_eq!(advice.recommended(), advice.renewing);
        assert!(advice.renewing.ttl >= MIN_TTL);
    }

    #[test]
    fn too_little_and_too_long_are_refused() {
        let few = Advice::from(&Evidence::of_held([secs(1); 3]), &Requirements::default());
        assert!(matches!(few, Err(AdviceError::TooLittle(_))), "{few:?}");
        let long = Advice::from(&Evidence::of_held([secs(100_000); 400]), &Requirements::default());
        assert!(matches!(long, Err(AdviceError::TooLong(_))), "{long:?}");
        // Even with the longest values the sum is refused and does not overflow.
        let most = Some(Duration::MAX);
        for requirements in [
            Requirements { p99: most, jitter: most, guard: most, ..Requirements::default() },
            Requirements { p99: Some(secs(1)), stop_grace: most, ..Requirements::default() },
        ] {
            let long = Advice::from(&Evidence::default(), &requirements);
            assert!(matches!(long, Err(AdviceError::TooLong(_))), "{long:?}");
        }
        // A known p99 needs no recorded holds.
        let known = Requirements { p99: Some(secs(18)), ..Requirements::default() };
        assert!(Advice::from(&Evidence::default(), &known).is_ok());
    }

    #[test]
    fn durations_round_up_to_two_digits() {
        for (from, to) in [(15_260, 16_000), (99, 99), (100, 100), (101, 110), (1_000, 1_000)] {
            assert_eq!(round_up_two_digits(Duration::from_millis(from)), Duration::from_millis(to), "{from}");
        }
    }
}
