//! I7: an unknown outcome is never reported as success nor as definite failure.
//!
//! *Released* means that no lease of this hold is left. *Already lost* means that no release of this
//! hold was applied: another client or the TTL ended the lease. *Debt* and *kept* say when the lease
//! will be over. An acquire that may have been granted is not reported as over without an undo.

use std::collections::{HashMap, HashSet};

use leasehold_core::life::{Effect, ReleaseOutcome};
use leasehold_core::store::ReleaseResponse;
use leasehold_core::types::Token;

use crate::clock::Nanos;
use crate::judge::{AcquireEnding, Fact, Invariant};
use crate::store::{LeaseRecord, StoreReply, StoreRequest};

#[derive(Debug, Default)]
pub(crate) struct UnknownStaysUnknown {
    /// Tokens whose own release has ended their lease.
    released: HashSet<Token>,
    /// A late or repeated request of this token was applied, so it may have a lease without an owner.
    haunted: HashSet<Token>,
    /// When a token's lease is over, as its holder was told. Messages that arrive after their
    /// sender has given up on them can extend it; those are excluded.
    promised: HashMap<Token, Nanos>,
    prolonged: HashSet<Token>,
}

impl UnknownStaysUnknown {
    fn kept_too_long(&self, lease: Option<&LeaseRecord>) -> Result<(), String> {
        let Some(lease) = lease else { return Ok(()) };
        match self.promised.get(&lease.owner) {
            Some(until) if lease.expires > *until => Err(format!("{lease:?} was said to be over at {until}")),
            _ => Ok(()),
        }
    }
}

impl Invariant for UnknownStaysUnknown {
    fn number(&self) -> &'static str {
        "I7"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Applied { verb, repeated, late, done, .. } => {
                if matches!(done.reply, StoreReply::Release(ReleaseResponse::Released)) {
                    self.released.insert(verb.token().clone());
                }
                if (*late || *repeated) && matches!(verb, StoreRequest::Acquire(_)) {
                    self.haunted.insert(verb.token().clone());
                }
                if *late || *repeated {
                    self.promised.remove(verb.token());
                    self.prolonged.insert(verb.token().clone());
                }
                self.kept_too_long(done.after.as_ref())
            }
            Fact::Ended { key, how, loose: true, undo: false, .. } if *how != AcquireEnding::Held => {
                Err(format!(
                    "acquire {key:?} ended as {how:?} although an ask of it may have been granted, and is not undone"
                ))
            }
            Fact::Stepped { hold, effects, lease, promised, .. } => {
                let Some(outcome) = effects.iter().find_map(finished) else {
                    return Ok(());
                };
                // A local-only hold has no lease; its heals may have left one, which is undone and
                // which I6 checks.
                let left = lease.filter(|lease| lease.owner == *hold.token && hold.fence.is_some());
                if let Some(until) = promised.filter(|_| !self.prolonged.contains(hold.token)) {
                    self.promised.insert(hold.token.clone(), until);
                    self.kept_too_long(*lease)?;
                }
                let haunted = self.haunted.contains(hold.token);
                match outcome {
                    ReleaseOutcome::Released | ReleaseOutcome::AlreadyLost if left.is_some() && !haunted => {
                        Err(format!(
                            "hold {:?} ended as {outcome:?}, but its lease is there: {left:?}",
                            hold.key
                        ))
                    }
                    ReleaseOutcome::AlreadyLost if self.released.contains(hold.token) => Err(format!(
                        "hold {:?} ended as {outcome:?}, but it was its own release that ended the lease",
                        hold.key
                    )),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

fn finished(effect: &Effect) -> Option<ReleaseOutcome> {
    match effect {
        Effect::Finish(outcome) => Some(*outcome),
        _ => None,
    }
}
