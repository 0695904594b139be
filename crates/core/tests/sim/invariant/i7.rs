//! I7: an unknown outcome is never reported as success nor as definite failure.
//!
//! *Released* means that no lease of this hold is left. *Already lost* means that no release of ours was applied: it
//! was someone else, or time. *Debt* and *kept* say until when, and then the lease is over. An acquire that may have been granted is not reported as over without an undo.

use std::collections::{HashMap, HashSet};

use leasehold_core::life::{Effect, Outcome};
use leasehold_core::store::Given;
use leasehold_core::word::Token;

use crate::clock::Nanos;
use crate::court::{Ending, Fact, Invariant};
use crate::engine::{Record, Reply, Verb};

#[derive(Debug, Default)]
pub(crate) struct UnknownStaysUnknown {
    /// Tokens whose lease a release of theirs has ended.
    released: HashSet<Token>,
    /// A late or repeated ask of this token was applied, so it may have a lease that nobody asked for.
    haunted: HashSet<Token>,
    /// When a token's lease is over, as its holder was told. Messages that arrive after their sender has given up on
    /// them can prolong it; those are left out.
    promised: HashMap<Token, Nanos>,
    prolonged: HashSet<Token>,
}

impl UnknownStaysUnknown {
    fn kept_too_long(&self, lease: Option<&Record>) -> Result<(), String> {
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

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Applied {
                verb,
                repeated,
                late,
                done,
                ..
            } => {
                if matches!(done.reply, Reply::Given(Given::Released)) {
                    self.released.insert(verb.token().clone());
                }
                if (*late || *repeated) && matches!(verb, Verb::Ask(_)) {
                    self.haunted.insert(verb.token().clone());
                }
                if *late || *repeated {
                    self.promised.remove(verb.token());
                    self.prolonged.insert(verb.token().clone());
                }
                self.kept_too_long(done.after.as_ref())
            }
            Fact::Ended {
                key,
                how,
                loose: true,
                undo: false,
                ..
            } if *how != Ending::Held => Err(format!(
                "acquire {key:?} ended as {how:?} although an ask of it may have been granted, and is not undone"
            )),
            Fact::Stepped {
                hold,
                effects,
                lease,
                promised,
                ..
            } => {
                let Some(outcome) = effects.iter().find_map(finished) else {
                    return Ok(());
                };
                // A local-only hold has none to speak of; what its heals may have left is undone, and I6 looks after it.
                let left = lease.filter(|lease| lease.owner == *hold.token && hold.fence.is_some());
                if let Some(until) = promised.filter(|_| !self.prolonged.contains(hold.token)) {
                    self.promised.insert(hold.token.clone(), until);
                    self.kept_too_long(*lease)?;
                }
                let haunted = self.haunted.contains(hold.token);
                match outcome {
                    Outcome::Released | Outcome::AlreadyLost if left.is_some() && !haunted => Err(format!(
                        "hold {:?} ended as {outcome:?}, but its lease is there: {left:?}",
                        hold.key
                    )),
                    Outcome::AlreadyLost if self.released.contains(hold.token) => Err(format!(
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

fn finished(effect: &Effect) -> Option<Outcome> {
    match effect {
        Effect::Finish(outcome) => Some(*outcome),
        _ => None,
    }
}
