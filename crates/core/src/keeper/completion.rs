//! Maps the results of store calls to inputs of the machines.

use super::Keeper;
use crate::life::{Input, ReleaseResult};
use crate::store::{AcquireResponse, BusyLease, ReleaseResponse, RenewResponse};
use crate::store_call::{CallCompletion, CallOutcome, HealCompletion};

impl Keeper {
    pub(super) fn on_completion(&mut self, answered: CallCompletion) {
        if answered.store_answered() {
            // Renewals and releases bypass the breaker, but their answers prove that the store is
            // reachable.
            self.context.breaker().record_success();
        }
        match answered {
            CallCompletion::Renew { id, sent_at, result } => {
                let input = match result {
                    CallOutcome::Done(RenewResponse::Extended { remaining_before: was_left }) => {
                        Input::Renewed { sent_at, remaining_before: was_left }
                    }
                    CallOutcome::Done(RenewResponse::NotOwned) => Input::NotOwned,
                    CallOutcome::Failed { unknown } => Input::RenewFailed { unknown },
                };
                self.step(id, input);
            }
            CallCompletion::Heal(heal) => self.on_heal(heal),
            CallCompletion::Release { id, result } => {
                let answer = match result {
                    CallOutcome::Done(ReleaseResponse::Released) => ReleaseResult::Released,
                    CallOutcome::Done(ReleaseResponse::NotOwned) => ReleaseResult::NotOwned,
                    CallOutcome::Failed { unknown } => ReleaseResult::Failed { unknown },
                };
                self.step(id, Input::ReleaseAnswered(answer));
            }
        }
    }

    fn on_heal(&mut self, heal: HealCompletion) {
        let input = match heal.result {
            CallOutcome::Done(AcquireResponse::Granted(grant)) => {
                if let Some(entry) = self.entries.get(&heal.id) {
                    self.context.floors.record(&entry.name, grant.fence);
                }
                Input::Healed { sent_at: heal.sent_at, fence: grant.fence, ttl: grant.ttl }
            }
            CallOutcome::Done(AcquireResponse::Busy(busy)) => {
                if let (Some(entry), Some(fence)) = (self.entries.get(&heal.id), busy.fence) {
                    self.context.floors.record(&entry.name, fence);
                }
                if self.is_own_debt(heal.id, &busy) {
                    Input::HealFailed { unknown: false }
                } else {
                    Input::HealBusy
                }
            }
            CallOutcome::Done(AcquireResponse::Void) => {
                // A voided token can never be granted; the next heal uses a fresh one.
                if let Some(entry) = self.entries.get_mut(&heal.id) {
                    entry.heal_token = None;
                }
                Input::HealFailed { unknown: false }
            }
            CallOutcome::Failed { unknown } => Input::HealFailed { unknown },
        };
        self.step(heal.id, input);
    }

    /// Returns true if the lease that blocks a heal is a debt of this keeper. Its work has ended or
    /// never ran, so no other work overlaps the hold, and the heal succeeds once the debt is
    /// cleared.
    fn is_own_debt(&self, id: u64, busy: &BusyLease) -> bool {
        let Some(hold) = self.entries.get(&id) else {
            return false;
        };
        self.entries.values().any(|entry| entry.is_debt_for(busy) && entry.name == hold.name)
    }
}
