//! The class of a hold, and policy changes while it is held.

use std::sync::Arc;

use super::{Effect, HoldMachine, HoldState};
use crate::clock::Moment;
use crate::event::Loss;
use crate::policy::{Class, Enforcement, OnFailure};

impl HoldMachine {
    // Wider margins apply at once, to the current lease. Narrower margins and a new TTL apply from
    // the next renewal, because the current lease was requested on other terms.
    pub(super) fn policy_changed(&mut self, class: Arc<Class>, now: Moment, out: &mut Vec<Effect>) {
        if *self.class == *class {
            return;
        }
        self.class = class;
        if let (HoldState::Proven { deadline }, Some(lease)) = (self.state, self.lease) {
            self.state = HoldState::Proven {
                deadline: lease.terms.deadline(lease.sent_at, &self.class).min(deadline),
            };
            // After a failure the retry schedule stands; it already fits the deadline.
            if self.failures == 0 {
                self.schedule_renewal(lease.sent_at);
            }
        }
        if matches!(self.state, HoldState::Unproven { .. }) && self.stops_unproven_work() {
            self.on_loss(Loss::Deadline, now, out);
        }
        self.judge(now, out);
    }

    /// Returns true if the policy stops work that cannot prove its lease.
    pub(super) fn stops_unproven_work(&self) -> bool {
        self.class.renew.on_failure == OnFailure::Fence && self.class.mode == Enforcement::Enforce
    }

    // A shadow policy reports `max_hold` once and goes on; it applies again when the class is
    // enforced.
    pub(super) fn max_hold_end(&self) -> Moment {
        let counted = self.shadow_reported && self.class.mode == Enforcement::Shadow;
        match self.class.max_hold {
            Some(limit) if !counted => self.started + limit.saturating_sub(self.earlier_age),
            _ => Moment::FAR,
        }
    }
}
