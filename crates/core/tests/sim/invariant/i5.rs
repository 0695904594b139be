//! I5: a deadline never lies after the store's expiry, and in a `fence` class no work proceeds past it, nor past
//! `max_hold`, nor after the store has said *not yours*.
//!
//! Holds granted before a loss are left out where the lease itself is looked for: it was forgotten, not cut short.

use std::collections::{HashMap, HashSet};

use leasehold_core::life::State;
use leasehold_core::policy::Enforcement;
use leasehold_core::word::Fence;

use crate::court::{Fact, Invariant, Key, View};
use crate::engine::Record;

#[derive(Debug, Default)]
pub(crate) struct NoWorkPastTheLease {
    losses: u32,
    granted: HashMap<Fence, u32>,
    told: HashSet<(Key, Fence)>,
}

impl NoWorkPastTheLease {
    fn forgotten(&self, fence: Fence) -> bool {
        self.granted.get(&fence).is_some_and(|then| *then < self.losses)
    }

    fn told(&self, hold: &View<'_>, fence: Fence) -> bool {
        self.told.contains(&(hold.key, fence))
    }
}

impl Invariant for NoWorkPastTheLease {
    fn number(&self) -> &'static str {
        "I5"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Forgot => self.losses += 1,
            Fact::Applied { done, .. } => {
                if let Some(record) = &done.after {
                    self.granted.entry(record.fence).or_insert(self.losses);
                }
            }
            Fact::Told { key, fence } => {
                self.told.insert((*key, *fence));
            }
            Fact::Stepped { at, hold, lease, .. } => {
                let Some(fence) = hold.fence.filter(|_| hold.proven_until > *at) else {
                    return Ok(());
                };
                if self.told(hold, fence) {
                    return Err(format!(
                        "hold {:?} was told that it is not the owner and goes on",
                        hold.key
                    ));
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
    fn worked(&self, hold: &View<'_>, lease: Option<&Record>) -> Result<(), String> {
        if hold.class.mode == Enforcement::Enforce
            && let Some(limit) = hold.class.max_hold
            && hold.local >= hold.started + limit
        {
            return Err(format!(
                "hold {:?} worked past its max_hold of {limit:?}",
                hold.key
            ));
        }
        let Some(fence) = hold.fence.filter(|_| hold.fences()) else {
            return Ok(());
        };
        if matches!(hold.state, State::LocalOnly { .. }) {
            return Ok(());
        }
        if self.told(hold, fence) {
            return Err(format!("hold {:?} worked after *not owned*", hold.key));
        }
        if !self.forgotten(fence) && mine(lease, fence).is_none() {
            return Err(format!(
                "hold {:?} worked without its lease {fence}; there is {lease:?}",
                hold.key
            ));
        }
        Ok(())
    }
}

fn mine(lease: Option<&Record>, fence: Fence) -> Option<&Record> {
    lease.filter(|lease| lease.fence == fence)
}
