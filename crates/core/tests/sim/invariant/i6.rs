//! I6: an acquire that did not end in a hold leaves no lease behind once its undo was possible, and none past its TTL.
//!
//! Left out: a client that died cannot undo, and a message that the network repeats long after its answer was heard can
//! grant a lease to nobody. Both are bounded by the TTL, which the quiet end of each history shows.

use std::collections::{HashMap, HashSet};

use leasehold_core::store::Answer;
use leasehold_core::word::Token;

use crate::clock::{Nanos, SEC};
use crate::court::{Ending, Fact, Invariant};
use crate::engine::{Applied, Record, Reply, Verb};
use crate::keeping::confirmed_undo;

/// A little less than a tombstone's life, for clocks that drift.
const REFUSED: Nanos = 58 * SEC;

#[derive(Debug, Default)]
pub(crate) struct NothingLeftBehind {
    /// Ended without a hold and without an undo.
    closed: HashSet<Token>,
    /// Given back with a tombstone, and until when a late ask must be refused.
    undone: HashMap<Token, Nanos>,
    /// A repeated ask of this token was applied.
    haunted: HashSet<Token>,
    /// Somebody sees to it that what is granted to this token is undone.
    undoing: HashSet<Token>,
    /// Its hold is over, and nobody does.
    over: HashSet<Token>,
}

impl NothingLeftBehind {
    /// A message of somebody who is done with it must not be granted, unless the network has repeated it.
    fn granted(&self, verb: &Verb, done: &Applied) -> Result<(), String> {
        let token = verb.token();
        let granted = matches!(done.reply, Reply::Asked(Answer::Granted(_)));
        if granted && self.over.contains(token) && !self.haunted.contains(token) {
            return Err(format!(
                "{:?} is granted to a hold that is over, and nobody undoes it",
                done.after
            ));
        }
        Ok(())
    }

    fn judge(&self, lease: Option<&Record>, at: Nanos) -> Result<(), String> {
        let Some(lease) = lease else { return Ok(()) };
        if self.undone.get(&lease.owner).is_some_and(|until| at < *until) {
            return Err(format!("{lease:?} belongs to an acquire that was undone"));
        }
        if self.closed.contains(&lease.owner) && !self.haunted.contains(&lease.owner) {
            return Err(format!(
                "{lease:?} belongs to an acquire that ended without a hold"
            ));
        }
        Ok(())
    }
}

impl Invariant for NothingLeftBehind {
    fn number(&self) -> &'static str {
        "I6"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Applied {
                at,
                verb,
                repeated,
                done,
                ..
            } => {
                if *repeated && matches!(verb, Verb::Ask(_)) {
                    self.haunted.insert(verb.token().clone());
                }
                if matches!(verb, Verb::Release(giving) if giving.tombstone.is_some()) {
                    self.undone.insert(verb.token().clone(), at + REFUSED);
                }
                self.granted(verb, done)?;
                self.judge(done.after.as_ref(), *at)
            }
            // Tombstones are forgotten too.
            Fact::Forgot => {
                self.undone.clear();
                self.over.clear();
                Ok(())
            }
            Fact::Ended {
                token,
                how,
                undo: false,
                lease,
                ..
            } if !matches!(how, Ending::Held | Ending::Local) => {
                self.closed.insert((*token).clone());
                self.judge(*lease, 0)
            }
            Fact::Dropped { token } => {
                self.closed.insert((*token).clone());
                Ok(())
            }
            Fact::Undoing { token } => {
                self.closed.remove(*token);
                self.undoing.insert((*token).clone());
                Ok(())
            }
            Fact::Over { token } => {
                if !self.undoing.contains(*token) {
                    self.over.insert((*token).clone());
                }
                Ok(())
            }
            Fact::Stepped {
                at,
                hold,
                effects,
                lease,
                ..
            } if hold.undo && confirmed_undo(effects) => self.judge(*lease, *at),
            Fact::Quiet { leases } => match leases.first() {
                Some(lease) => Err(format!("{lease:?} outlives everyone and its TTL")),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
