//! I9, as far as the machine is concerned: the caller is answered exactly once. The cancellation
//! fires at most once and is counted exactly then. An abandoned hold is neither renewed nor
//! released any more.

use std::collections::BTreeMap;

use leasehold_core::event::{EventKind, Loss};
use leasehold_core::life::Effect;

use crate::judge::{Fact, HoldKey, Invariant};

#[derive(Debug, Default)]
struct HoldEndings {
    finishes: u32,
    cancels: u32,
    abandoned: u32,
    /// Ended by the client's shutdown, not for lack of proof: its lease may be released.
    shutdown: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SingleNotification {
    holds: BTreeMap<HoldKey, HoldEndings>,
}

impl Invariant for SingleNotification {
    fn number(&self) -> &'static str {
        "I9"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Stepped { hold, effects, .. } => {
                let key = hold.key;
                let seen = self.holds.entry(key).or_default();
                for effect in *effects {
                    match effect {
                        Effect::Finish(_) => seen.finishes += 1,
                        Effect::Cancel(loss) => {
                            seen.cancels += 1;
                            seen.shutdown |= *loss == Loss::Shutdown;
                        }
                        Effect::Emit(EventKind::Abandoned { .. }) => seen.abandoned += 1,
                        Effect::Renew | Effect::Heal if seen.cancels > 0 => {
                            return Err(format!("hold {key:?} asks the store after it was abandoned"));
                        }
                        Effect::Release { .. } if seen.cancels > 0 && !seen.shutdown => {
                            return Err(format!("hold {key:?} is released although it was abandoned"));
                        }
                        _ => {}
                    }
                }
                if seen.finishes > 1 || seen.cancels > 1 || seen.cancels != seen.abandoned {
                    return Err(format!("hold {key:?} has {seen:?}"));
                }
                if hold.undo && seen.finishes + seen.cancels > 0 {
                    return Err(format!("undo {key:?} has {seen:?}: nobody waits for it"));
                }
                if hold.undo {
                    self.holds.remove(&key);
                }
            }
            Fact::Crashed { client } => self.holds.retain(|key, _| key.0 != *client),
            Fact::Quiet { .. } => {
                if let Some((key, seen)) = self.holds.iter().find(|(_, seen)| seen.finishes != 1) {
                    return Err(format!("hold {key:?} is over and has {seen:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
