//! I5: a deadline is never after the store's expiry. In a `fence` class no work proceeds past it,
//! past `max_hold`, or after the store has answered *not owned*.
//!
//! Holds granted before a data loss are excluded where the lease itself is checked: it was lost, not shortened.

use std::collections::{HashMap, HashSet};

use leasehold_core::life::HoldState;
use leasehold_core::policy::Enforcement;
use leasehold_core::types::Fence;

use crate::judge::{Fact, HoldKey, HoldSnapshot, Invariant};
use crate::store::LeaseRecord;

#[derive(Debug, Default)]
pub(crate) struct NoWorkPastTheLease {
    losses: u32,
    granted: HashMap<Fence, u32>,
    told: HashSet<(HoldKey, Fence)>,
}

impl NoWorkPastTheLease {
    fn forgotten(&self, fence: Fence) -> bool {
        self.granted.get(&fence).is_some_and(|then| *then < self.losses)
    }

    fn told(&self, hold: &HoldSnapshot<'_>, fence: Fence) -> bool {
        self.told.contains(&(hold.key, fence))
    }
}

impl Invariant for NoWorkPastTheLease {
    fn number(&self) -> &'static str {
        "I5"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::StoreLostData => self.losses += 1,
            Fact::Applied { done, .. } => {
                if let Some(record) = &done.after {
                    self.granted.entry(record.fence).or_insert(self.losses);
                }
            }
            Fact::NotOwnedReceived { key, fence } => {
                self.told.insert((*key, *fence));
            }
            Fact::Stepped { at, hold, lease, .. } => {
                let Some(fence) = hold.fence.filter(|_| hold.proven_until > *at) else {
                    return Ok(());
                };
                if self.told(hold, fence) {
                    return Err(format!("hold {:?} was told that it is not the owner and goes on", hold.key));
                }
                let expires = mine(*lease, fence).map(|lease| lease.expires);
                if !self.forgotten(fence) && expires.is_none_or(|expires| expires < hold.proven_until) {
                    return Err(format!(
                        "hold {:?} (fence {fence}) may act until {}, but its lease ends at {expires:?}",
                        hold.key, hold.proven_until
                    ));
                }
            }
            Fact::Worked { hold, lease, .. } => return self.worked(hold, *lease),
            _ => {}
        }
        Ok(())
    }
}

impl NoWorkPastTheLease {
    fn worked(&self, hold: &HoldSnapshot<'_>, lease: Option<&LeaseRecord>) -> Result<(), String> {
        if hold.class.mode == Enforcement::Enforce
            && let Some(limit) = hold.class.max_hold
            && hold.local >= hold.started + limit
        {
            return Err(format!("hold {:?} worked past its max_hold of {limit:?}", hold.key));
        }
        let Some(fence) = hold.fence.filter(|_| hold.stops_unproven_work()) else {
            return Ok(());
        };
        if matches!(hold.state, HoldState::LocalOnly { .. }) {
            return Ok(());
        }
        if self.told(hold, fence) {
            return Err(format!("hold {:?} worked after *not owned*", hold.key));
        }
        if !self.forgotten(fence) && mine(lease, fence).is_none() {
            return Err(format!("hold {:?} worked without its lease {fence}; there is {lease:?}", hold.key));
        }
        Ok(())
    }
}

fn mine(lease: Option<&LeaseRecord>, fence: Fence) -> Option<&LeaseRecord> {
    lease.filter(|lease| lease.fence == fence)
}
