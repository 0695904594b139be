//! What the store's answers mean to the lives they are for.

use super::Keeper;
use crate::call::{Answered, Heal, Result3};
use crate::life::{Input, ReleaseAnswer};
use crate::store::{Answer, Busy, Given, Renewed};

impl Keeper {
    pub(super) fn answered(&mut self, answered: Answered) {
        if answered.reached_store() {
            self.tools.breaker().succeeded();
        }
        match answered {
            Answered::Renew { id, sent_at, result } => {
                let input = match result {
                    Result3::Done(Renewed::Extended { was_left }) => Input::Renewed { sent_at, was_left },
                    Result3::Done(Renewed::NotOwned) => Input::NotOwned,
                    Result3::Failed { unknown } => Input::RenewFailed { unknown },
                };
                self.step(id, input);
            }
            Answered::Heal(heal) => self.healed(heal),
            Answered::Release { id, result } => {
                let answer = match result {
                    Result3::Done(Given::Released) => ReleaseAnswer::Released,
                    Result3::Done(Given::NotOwned) => ReleaseAnswer::NotOwned,
                    Result3::Failed { unknown } => ReleaseAnswer::Failed { unknown },
                };
                self.step(id, Input::ReleaseAnswer(answer));
            }
        }
    }

    fn healed(&mut self, heal: Heal) {
        let input = match heal.result {
            Result3::Done(Answer::Granted(grant)) => {
                if let Some(entry) = self.entries.get(&heal.id) {
                    self.tools.floors.saw(&entry.name, grant.fence);
                }
                Input::Healed {
                    sent_at: heal.sent_at,
                    fence: grant.fence,
                    ttl: grant.ttl,
                }
            }
            Result3::Done(Answer::Busy(busy)) => {
                if let (Some(entry), Some(fence)) = (self.entries.get(&heal.id), busy.fence) {
                    self.tools.floors.saw(&entry.name, fence);
                }
                if self.own_debt(heal.id, &busy) {
                    Input::HealFailed { unknown: false }
                } else {
                    Input::HealBusy
                }
            }
            Result3::Done(Answer::Void) => {
                // Asking with an undone token can never succeed: the next heal has a fresh one.
                if let Some(entry) = self.entries.get_mut(&heal.id) {
                    entry.heal_token = None;
                }
                Input::HealFailed { unknown: false }
            }
            Result3::Failed { unknown } => Input::HealFailed { unknown },
        };
        self.step(heal.id, input);
    }

    /// The lease that a heal has met is one that this keeper is about to give back: its work is over, or never was, so that
    /// nobody works beside the hold. It is taken as soon as it is free.
    fn own_debt(&self, id: u64, busy: &Busy) -> bool {
        let Some(hold) = self.entries.get(&id) else {
            return false;
        };
        self.entries
            .values()
            .any(|entry| entry.owes(busy) && entry.name == hold.name)
    }
}
