//! What the class says of a hold, also when it changes under one.

use std::sync::Arc;

use super::{Effect, Life, State};
use crate::clock::Moment;
use crate::event::Loss;
use crate::policy::{Class, Enforcement, OnFailure};

impl Life {
    /// Wider margins count at once, for the lease that is already there; narrower ones and a new TTL count from the
    /// next renewal, because this lease was asked for on other terms.
    pub(super) fn policy_changed(&mut self, class: Arc<Class>, now: Moment, out: &mut Vec<Effect>) {
        if *self.class == *class {
            return;
        }
        self.class = class;
        if let (State::Proven { deadline }, Some(lease)) = (self.state, self.lease) {
            self.state = State::Proven {
                deadline: lease.terms.deadline(lease.sent_at, &self.class).min(deadline),
            };
            if self.failures == 0 {
                self.schedule_renewal(lease.sent_at);
            }
        }
        if matches!(self.state, State::Unproven { .. }) && self.fences() {
            self.lose(Loss::Deadline, now, out);
        }
        self.judge(now, out);
    }

    /// The policy stops work that cannot prove its lease.
    pub(super) fn fences(&self) -> bool {
        self.class.renew.on_failure == OnFailure::Fence && self.class.mode == Enforcement::Enforce
    }

    /// When `max_hold` ends it. A shadow policy has been counted once and goes on, until it is one that acts.
    pub(super) fn max_end(&self) -> Moment {
        let counted = self.would_stop && self.class.mode == Enforcement::Shadow;
        match self.class.max_hold {
            Some(limit) if !counted => self.started + limit.saturating_sub(self.aged),
            _ => Moment::FAR,
        }
    }
}
