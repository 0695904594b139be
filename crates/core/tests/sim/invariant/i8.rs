//! I8: in a fail-closed class work does not run while the store is unavailable. In a fail-open
//! class it runs, marked, and only after a store error, never on contention.

use std::collections::HashSet;

use leasehold_core::life::{Effect, HoldState};
use leasehold_core::policy::{Enforcement, OnError};

use crate::judge::{AcquireEnding, Fact, HoldKey, Invariant};

#[derive(Debug, Default)]
pub(crate) struct OnErrorPolicyApplied {
    /// Acquires that ended without a hold.
    refused: HashSet<HoldKey>,
    /// Acquires that fell back and have not been granted a lease since.
    local: HashSet<HoldKey>,
}

impl Invariant for OnErrorPolicyApplied {
    fn number(&self) -> &'static str {
        "I8"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Ended { key, class, how, erred, .. } => {
                let open = class.acquire.on_error == OnError::FailOpen || class.mode == Enforcement::Shadow;
                match how {
                    AcquireEnding::Local => {
                        if !self.local.insert(*key) {
                            return Err(format!("acquire {key:?} fell back twice"));
                        }
                        if !open {
                            return Err(format!("acquire {key:?} fell back in a fail-closed class"));
                        }
                        if !erred {
                            return Err(format!("acquire {key:?} fell back although the store answered"));
                        }
                    }
                    AcquireEnding::Unavailable if open => {
                        return Err(format!("acquire {key:?} was refused in a fail-open class"));
                    }
                    AcquireEnding::Unavailable | AcquireEnding::Busy | AcquireEnding::Cancelled => {
                        self.refused.insert(*key);
                    }
                    AcquireEnding::Held => {}
                }
            }
            Fact::Stepped { hold, effects, .. } => {
                if !hold.undo && self.refused.contains(&hold.key) {
                    return Err(format!("hold {:?} lives although its acquire was refused", hold.key));
                }
                if effects.contains(&Effect::AdoptHealToken) {
                    self.local.remove(&hold.key);
                }
                let local = self.local.contains(&hold.key);
                if local && (hold.fence.is_some() || matches!(hold.state, HoldState::Proven { .. })) {
                    return Err(format!("hold {:?} is local only and shows a lease", hold.key));
                }
            }
            Fact::Worked { hold, .. } if self.refused.contains(&hold.key) => {
                return Err(format!("hold {:?} works although its acquire was refused", hold.key));
            }
            _ => {}
        }
        Ok(())
    }
}
