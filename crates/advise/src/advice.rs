//! From evidence to a plan: the sums of the TTL.
//!
//! Two plans. *Covering*: `ttl = p99 + jitter + guard`, so that work at its 99th percentile ends within one lease even if
//! no renewal gets through. *Renewing*: the shortest lease in which one renewal may time out and its retry still be
//! confirmed before the deadline, with the guard to spare; work may take any time, and a crash is taken over sooner.

use std::time::Duration;

use leasehold_core::policy::Class;

use crate::evidence::{Evidence, TooLittle};
use crate::sample::Beyond;

/// A renewal that is answered slower than this is worth a retry at the earliest.
const LEAST_TIMEOUT: Duration = Duration::from_millis(50);
/// The guard if none is asked for is a tenth of the p99, at least this.
const LEAST_GUARD: Duration = Duration::from_millis(50);
/// Waiters ask again after at most this long, so a free name is found within it.
const DETECTION: Duration = Duration::from_secs(1);
/// Leases are 100 ms to 24 h.
const SHORTEST: Duration = Duration::from_millis(100);

/// What the operator brings to the sums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The p99 of held time, if known better than from records.
    pub p99: Option<Duration>,
    /// The budget for network, store tail and pauses; from the records if not given.
    pub jitter: Option<Duration>,
    /// What is added on top.
    pub guard: Option<Duration>,
    /// What the work needs to stop; what `leasehold run` gives a process if nobody says.
    pub stop_grace: Option<Duration>,
    /// How long a name stays shut after an unclean loss.
    pub lock_delay: Duration,
    /// From a holder's crash to the next owner's first step, at most.
    pub takeover_slo: Option<Duration>,
    /// The TTL in force, to be judged beside the advised one.
    pub current: Option<Duration>,
}

impl Wishes {
    /// What the work has to stop under this TTL.
    fn grace(&self, ttl: Duration) -> Duration {
        self.stop_grace.unwrap_or_else(|| Class::process_grace(ttl))
    }
}

/// A TTL and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The lease's time to live.
    pub ttl: Duration,
    /// Renewed this often.
    pub every: Duration,
    /// The budget of one renewal.
    pub timeout: Duration,
    /// What is left for retries and stalls between a renewal's due time and the deadline.
    pub margin: Duration,
    /// From a crash to the next owner, at most.
    pub takeover: Duration,
}

impl Plan {
    /// The plan of a TTL that is renewed every third of it.
    #[must_use]
    pub fn of(ttl: Duration, timeout: Duration, wishes: &Wishes) -> Self {
        let every = ttl / 3;
        let usable = ttl
            .saturating_sub(Class::default_drift(ttl))
            .saturating_sub(wishes.grace(ttl));
        Self {
            ttl,
            every,
            timeout,
            margin: usable.saturating_sub(every),
            takeover: ttl + wishes.lock_delay + DETECTION,
        }
    }
}

/// Can the takeover target be met?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slo {
    /// The target.
    pub target: Duration,
    /// What the TTL in force makes of it, if that was said.
    pub current: Option<Duration>,
    /// What is left to do.
    pub lever: Lever,
}

/// How a takeover target can be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lever {
    /// The covering plan meets it.
    Covering,
    /// Only the shorter, renewing plan does.
    Renewing,
    /// No TTL does that the recorded delays permit: make them shorter, or end a dead holder's lease by another way.
    FastFail,
}

/// What to set, and what it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The share of holds it is computed from.
    pub p99: Duration,
    /// The median, for comparison.
    pub p50: Duration,
    /// The 95th percentile, for comparison.
    pub p95: Duration,
    /// Network, store tail and pauses.
    pub jitter: Duration,
    /// On top.
    pub guard: Duration,
    /// Work at its p99 fits one lease.
    pub covering: Plan,
    /// The shortest lease that a retry fits in.
    pub renewing: Plan,
    /// About the takeover target, if there is one.
    pub slo: Option<Slo>,
}

/// No advice can be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAdvice {
    /// Not enough was recorded.
    #[error(transparent)]
    TooLittle(#[from] TooLittle),
    /// The histogram does not reach far enough.
    #[error("the percentile is {0}")]
    Beyond(#[from] Beyond),
    /// The sum is longer than any lease may be.
    #[error(
        "the sum is {0:?}, and a lease lives 24h at most\nsplit the work, or let renewals carry it: set ttl by hand"
    )]
    TooLong(Duration),
}

impl Advice {
    /// Does the sums.
    ///
    /// # Errors
    /// There is too little data, or it says too little.
    pub fn from(evidence: &Evidence, wishes: &Wishes) -> Result<Self, NoAdvice> {
        let p99 = match wishes.p99 {
            Some(p99) => p99,
            None => {
                evidence.enough()?;
                evidence.held.quantile(0.99)?
            }
        };
        let jitter = match wishes.jitter {
            Some(jitter) => jitter,
            // One slow answer and one pause may meet.
            None => evidence
                .store
                .quantile(0.999)?
                .saturating_add(evidence.stalls.quantile(0.999)?),
        };
        let guard = wishes.guard.unwrap_or_else(|| (p99 / 10).max(LEAST_GUARD));
        let timeout = jitter.max(LEAST_TIMEOUT);
        let covering = checked(p99.saturating_add(jitter).saturating_add(guard))?;
        // ttl - (20 ms + ttl/100) - stop_grace - ttl/3 >= two time-outs and the guard. A grace that grows with the TTL makes it
        // longer, which ends: it grows by a sixth of what was added, and not beyond five seconds.
        let without = timeout * 2 + guard + Duration::from_millis(20);
        let mut renewing = Duration::ZERO;
        loop {
            // Everything else is at most as long as the covering lease.
            let needed = checked(wishes.grace(renewing).saturating_add(without))?;
            let longer = checked(pleasant(needed.mul_f64(1.0 / (1.0 - 1.0 / 3.0 - 0.01))))?;
            if longer <= renewing {
                break;
            }
            renewing = longer;
        }
        let covering = Plan::of(
            covering.max(SHORTEST),
            timeout.min(covering / 6).max(Duration::from_millis(1)),
            wishes,
        );
        let renewing = Plan::of(renewing.max(SHORTEST), timeout, wishes);
        let slo = wishes.takeover_slo.map(|target| Slo {
            target,
            current: wishes.current.map(|ttl| ttl + wishes.lock_delay + DETECTION),
            lever: if covering.takeover <= target {
                Lever::Covering
            } else if renewing.takeover <= target {
                Lever::Renewing
            } else {
                Lever::FastFail
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

    /// The plan to set: the covering one, unless only the shorter meets the takeover target or is longer.
    #[must_use]
    pub fn recommended(&self) -> Plan {
        match self.slo.map(|slo| slo.lever) {
            Some(Lever::Renewing | Lever::FastFail) => self.renewing,
            // Work so short that renewals would not fit its lease needs the longer one.
            _ if self.covering.ttl < self.renewing.ttl => self.renewing,
            _ => self.covering,
        }
    }
}

fn checked(ttl: Duration) -> Result<Duration, NoAdvice> {
    if ttl > Duration::from_secs(24 * 3600) {
        return Err(NoAdvice::TooLong(ttl));
    }
    Ok(ttl)
}

/// Rounded up to what a person would write: two digits.
fn pleasant(time: Duration) -> Duration {
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

    fn articles() -> (Evidence, Wishes) {
        let evidence = Evidence::of_held((0..1000).map(|at| if at < 980 { secs(5) } else { secs(18) }));
        let wishes = Wishes {
            jitter: Some(secs(4)),
            guard: Some(secs(2)),
            stop_grace: Some(Duration::ZERO),
            ..Wishes::default()
        };
        (evidence, wishes)
    }

    #[test]
    fn eighteen_four_and_two_are_twenty_four_renewed_every_eight() {
        let (evidence, wishes) = articles();
        let advice = Advice::from(&evidence, &wishes).unwrap();
        assert_eq!((advice.p50, advice.p95, advice.p99), (secs(5), secs(5), secs(18)));
        assert_eq!((advice.covering.ttl, advice.covering.every), (secs(24), secs(8)));
        assert_eq!(advice.recommended(), advice.covering);
    }

    #[test]
    fn sixty_seconds_cannot_meet_a_takeover_of_thirty_but_the_advice_can() {
        let (evidence, wishes) = articles();
        let wishes = Wishes {
            takeover_slo: Some(secs(30)),
            current: Some(secs(60)),
            ..wishes
        };
        let slo = Advice::from(&evidence, &wishes).unwrap().slo.unwrap();
        assert_eq!(slo.current, Some(secs(61)));
        assert_eq!(slo.lever, Lever::Covering);
        // 20 s needs the shorter lease, 5 s another mechanism.
        let at = |target| Wishes {
            takeover_slo: Some(target),
            ..wishes.clone()
        };
        let shorter = Advice::from(&evidence, &at(secs(20))).unwrap();
        assert_eq!(shorter.slo.unwrap().lever, Lever::Renewing);
        assert_eq!(shorter.recommended(), shorter.renewing);
        let none = Advice::from(&evidence, &at(secs(5))).unwrap();
        assert_eq!(none.slo.unwrap().lever, Lever::FastFail);
    }

    #[test]
    fn the_renewing_plan_is_the_shortest_in_which_a_retry_fits() {
        let (evidence, wishes) = articles();
        let plan = Advice::from(&evidence, &wishes).unwrap().renewing;
        assert_eq!(plan.ttl, secs(16));
        assert!(plan.margin >= plan.timeout * 2 + secs(2), "{plan:?}");
        let shorter = Plan::of(secs(15), plan.timeout, &wishes);
        assert!(shorter.margin < plan.timeout * 2 + secs(2), "{shorter:?}");
    }

    #[test]
    fn measured_jitter_is_one_slow_answer_and_one_pause() {
        let mut evidence = Evidence::of_held([secs(10); 400]);
        evidence.store = crate::Sample::of([Duration::from_millis(30); 500]);
        evidence.stalls = crate::Sample::of([Duration::from_millis(700); 500]);
        let advice = Advice::from(&evidence, &Wishes::default()).unwrap();
        assert_eq!(advice.jitter, Duration::from_millis(730));
        assert_eq!(advice.guard, secs(1));
    }

    #[test]
    fn short_work_gets_a_lease_that_renewals_fit_in() {
        let evidence = Evidence::of_held([Duration::from_millis(2); 400]);
        let advice = Advice::from(&evidence, &Wishes::default()).unwrap();
        assert_eq!(advice.recommended(), advice.renewing);
        assert!(advice.renewing.ttl >= SHORTEST);
    }

    #[test]
    fn too_little_and_too_long_are_refused() {
        let few = Advice::from(&Evidence::of_held([secs(1); 3]), &Wishes::default());
        assert!(matches!(few, Err(NoAdvice::TooLittle(_))), "{few:?}");
        let long = Advice::from(&Evidence::of_held([secs(100_000); 400]), &Wishes::default());
        assert!(matches!(long, Err(NoAdvice::TooLong(_))), "{long:?}");
        // However long each of them is: the sum is refused, it does not overflow.
        let most = Some(Duration::MAX);
        for wishes in [
            Wishes {
                p99: most,
                jitter: most,
                guard: most,
                ..Wishes::default()
            },
            Wishes {
                p99: Some(secs(1)),
                stop_grace: most,
                ..Wishes::default()
            },
        ] {
            let long = Advice::from(&Evidence::default(), &wishes);
            assert!(matches!(long, Err(NoAdvice::TooLong(_))), "{long:?}");
        }
        // Known better than recorded: no records needed.
        let known = Wishes {
            p99: Some(secs(18)),
            ..Wishes::default()
        };
        assert!(Advice::from(&Evidence::default(), &known).is_ok());
    }

    #[test]
    fn pleasant_rounds_up_to_two_digits() {
        for (from, to) in [(15_260, 16_000), (99, 99), (100, 100), (101, 110), (1_000, 1_000)] {
            assert_eq!(
                pleasant(Duration::from_millis(from)),
                Duration::from_millis(to),
                "{from}"
            );
        }
    }
}
