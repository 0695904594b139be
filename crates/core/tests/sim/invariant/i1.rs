//! I1: at most one distributed hold of a name is within its deadline at any instant.
//!
//! A store that loses data breaks this, and no client can prevent it: holds granted before a loss are excluded.

use std::collections::{BTreeMap, HashMap};

use leasehold_core::types::Fence;

use crate::clock::Nanos;
use crate::judge::{Fact, HoldKey, Invariant};

#[derive(Debug, Default)]
pub(crate) struct OneHolder {
    /// How often the store has lost everything.
    losses: u32,
    /// The number of losses at the time of each grant.
    granted: HashMap<Fence, u32>,
    /// The proven holds: name, end of the proof, fence.
    proven: BTreeMap<HoldKey, (usize, Nanos, Fence)>,
}

impl OneHolder {
    fn forgotten(&self, fence: Fence) -> bool {
        self.granted.get(&fence).is_some_and(|then| *then < self.losses)
    }
}

impl Invariant for OneHolder {
    fn number(&self) -> &'static str {
        "I1"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::StoreLostData => self.losses += 1,
            Fact::Crashed { client } => self.proven.retain(|key, _| key.0 != *client),
            Fact::Applied { done, .. } => {
                if let Some(record) = &done.after {
                    self.granted.entry(record.fence).or_insert(self.losses);
                }
            }
            Fact::Stepped { at, hold, .. } => {
                self.proven.remove(&hold.key);
                let Some(fence) = hold.fence.filter(|_| hold.proven_until > *at) else {
                    return Ok(());
                };
                let rival = self.proven.iter().find(|(_, (name, until, rival))| {
                    *name == hold.name && until > at && !self.forgotten(*rival) && !self.forgotten(fence)
                });
                if let Some((key, (_, until, rival))) = rival {
                    return Err(format!(
                        "holds {key:?} (fence {rival}, until {until}) and {:?} (fence {fence}, until {}) both hold name {}",
                        hold.key, hold.proven_until, hold.name
                    ));
                }
                self.proven.insert(hold.key, (hold.name, hold.proven_until, fence));
            }
            _ => {}
        }
        Ok(())
    }
}
