//! Predicts the effects of a plan on the recorded work.

use std::time::Duration;

use crate::advice::Plan;
use crate::evidence::Evidence;

/// The share of renewals by which a live holder loses its lease.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum FalseLoss {
    /// Share of recorded delays that were longer than the margin.
    Observed(f64),
    /// No recorded delay was longer. With 95 % confidence the share is at most this (the rule of
    /// three).
    AtMost(f64),
    /// No delay was recorded.
    Unknown,
}

impl FalseLoss {
    /// Expected losses per hour of holding, with this renewal interval.
    #[must_use]
    pub fn per_hour(self, every: Duration) -> Option<f64> {
        let share = match self {
            Self::Observed(share) | Self::AtMost(share) => share,
            Self::Unknown => return None,
        };
        let renewals = 3600.0 / every.as_secs_f64().max(f64::EPSILON);
        Some(share * renewals)
    }
}

/// The predicted effects of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Forecast {
    /// The plan that this forecast is for.
    pub plan: Plan,
    /// The share of recorded holds that end within one lease.
    pub covered: f64,
    /// How often live holders lose their lease.
    pub false_loss: FalseLoss,
    /// Load on the store: renewals per second for all holds together.
    pub renewals_per_second: f64,
}

impl Forecast {
    /// Compares the plan with the evidence, for this many holds at once.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // Counts of records are far below 2^52.
    pub fn of(plan: Plan, evidence: &Evidence, holds: u64) -> Self {
        let held = evidence.held.count();
        let covered = match held {
            0 => 0.0,
            _ => 1.0 - evidence.held.longer_than(plan.ttl) as f64 / held as f64,
        };
        let delays = evidence.delays();
        let false_loss = match (delays.count(), delays.longer_than(plan.margin)) {
            (0, _) => FalseLoss::Unknown,
            (all, 0) => FalseLoss::AtMost((3.0 / all as f64).min(1.0)),
            (all, longer) => FalseLoss::Observed(longer as f64 / all as f64),
        };
        Self {
            plan,
            covered,
            false_loss,
            renewals_per_second: holds as f64 / plan.every.as_secs_f64().max(f64::EPSILON),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Requirements;
    use crate::sample::Sample;

    #[test]
    fn delays_beyond_the_margin_are_losses() {
        let secs = Duration::from_secs;
        let mut evidence = Evidence::of_held((1..=100).map(secs));
        let plan = Plan::of(secs(30), secs(1), &Requirements::default());
        assert_eq!(Forecast::of(plan, &evidence, 300).false_loss, FalseLoss::Unknown);
        // The margin is 30 - 0.32 - 10 = 19.68 s.
        evidence.stalls = Sample::of((0..100).map(|at| if at == 0 { secs(20) } else { secs(1) }));
        let forecast = Forecast::of(plan, &evidence, 300);
        assert_eq!(forecast.false_loss, FalseLoss::Observed(0.01));
        // 360 renewals an hour, one in a hundred lost.
        assert!((forecast.false_loss.per_hour(plan.every).unwrap() - 3.6).abs() < 1e-9);
        assert!((forecast.covered - 0.3).abs() < 1e-9);
        assert!((forecast.renewals_per_second - 30.0).abs() < 1e-9);
        let longer = Plan::of(secs(60), secs(1), &Requirements::default());
        assert_eq!(Forecast::of(longer, &evidence, 1).false_loss, FalseLoss::AtMost(0.03));
    }
}
