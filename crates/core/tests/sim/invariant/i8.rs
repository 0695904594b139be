//! I8: unavailable work does not run in a fail-closed class; in a fail-open class it runs, marked, and only after a
//! store error, never because someone else was there.

use std::collections::HashSet;

use leasehold_core::life::{Effect, State};
use leasehold_core::policy::{Enforcement, OnError};

use crate::court::{Ending, Fact, Invariant, Key};

#[derive(Debug, Default)]
pub(crate) struct FailsAsTheClassSays {
    /// Acquires that ended without a hold.
    refused: HashSet<Key>,
    /// Acquires that fell back and have not been granted a lease since.
    local: HashSet<Key>,
}

impl Invariant for FailsAsTheClassSays {
    fn number(&self) -> &'static str {
        "I8"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Ended {
                key,
                class,
                how,
                erred,
                ..
            } => {
                let open = class.acquire.on_error == OnError::FailOpen || class.mode == Enforcement::Shadow;
                match how {
                    Ending::Local => {
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
                    Ending::Unavailable if open => {
                        return Err(format!("acquire {key:?} was refused in a fail-open class"));
                    }
                    Ending::Unavailable | Ending::Busy | Ending::Cancelled => {
                        self.refused.insert(*key);
                    }
                    Ending::Held => {}
                }
            }
            Fact::Stepped { hold, effects, .. } => {
                if !hold.undo && self.refused.contains(&hold.key) {
                    return Err(format!(
                        "hold {:?} lives although its acquire was refused",
                        hold.key
                    ));
                }
                if effects.contains(&Effect::TakeOver) {
                    self.local.remove(&hold.key);
                }
                let local = self.local.contains(&hold.key);
                if local && (hold.fence.is_some() || matches!(hold.state, State::Proven { .. })) {
                    return Err(format!("hold {:?} is local only and shows a lease", hold.key));
                }
            }
            Fact::Worked { hold, .. } if self.refused.contains(&hold.key) => {
                return Err(format!(
                    "hold {:?} works although its acquire was refused",
                    hold.key
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
