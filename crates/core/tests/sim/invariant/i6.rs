//! I6: an acquire that did not end in a hold leaves no lease once its undo was possible, and none
//! past its TTL.
//!
//! Excluded: a crashed client cannot undo, and a message repeated by the network long after its response
//! can grant a lease without an owner. The TTL bounds both, which the quiet end of each history shows.

use std::collections::{HashMap, HashSet};

use leasehold_core::store::AcquireResponse;
use leasehold_core::types::Token;

use crate::clock::{Nanos, SEC};
use crate::hold_driver::confirmed_undo;
use crate::judge::{AcquireEnding, Fact, Invariant};
use crate::store::{Execution, LeaseRecord, StoreReply, StoreRequest};

/// A little less than a tombstone's TTL, because clocks drift.
const MIN_TOMBSTONE_NANOS: Nanos = 58 * SEC;

#[derive(Debug, Default)]
pub(crate) struct NoOrphanLease {
    /// Ended without a hold and without an undo.
    closed: HashSet<Token>,
    /// Released with a tombstone; a late request must be refused until then.
    undone: HashMap<Token, Nanos>,
    /// A repeated request of this token was applied.
    haunted: HashSet<Token>,
    /// A client is responsible for undoing what is granted to this token.
    undoing: HashSet<Token>,
    /// The hold is over, and no client undoes a later grant.
    over: HashSet<Token>,
}

impl NoOrphanLease {
    /// A request of a hold that is over must not be granted, unless the network has repeated it.
    fn granted(&self, verb: &StoreRequest, done: &Execution) -> Result<(), String> {
        let token = verb.token();
        let granted = matches!(done.reply, StoreReply::Acquire(AcquireResponse::Granted(_)));
        if granted && self.over.contains(token) && !self.haunted.contains(token) {
            return Err(format!("{:?} is granted to a hold that is over, and nobody undoes it", done.after));
        }
        Ok(())
    }

    fn judge(&self, lease: Option<&LeaseRecord>, at: Nanos) -> Result<(), String> {
        let Some(lease) = lease else { return Ok(()) };
        if self.undone.get(&lease.owner).is_some_and(|until| at < *until) {
            return Err(format!("{lease:?} belongs to an acquire that was undone"));
        }
        if self.closed.contains(&lease.owner) && !self.haunted.contains(&lease.owner) {
            return Err(format!("{lease:?} belongs to an acquire that ended without a hold"));
        }
        Ok(())
    }
}

impl Invariant for NoOrphanLease {
    fn number(&self) -> &'static str {
        "I6"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Applied { at, verb, repeated, done, .. } => {
                if *repeated && matches!(verb, StoreRequest::Acquire(_)) {
                    self.haunted.insert(verb.token().clone());
                }
                if matches!(verb, StoreRequest::Release(giving) if giving.tombstone.is_some()) {
                    self.undone.insert(verb.token().clone(), at + MIN_TOMBSTONE_NANOS);
                }
                self.granted(verb, done)?;
                self.judge(done.after.as_ref(), *at)
            }
            // Tombstones are lost too.
            Fact::StoreLostData => {
                self.undone.clear();
                self.over.clear();
                Ok(())
            }
            Fact::Ended { token, how, undo: false, lease, .. }
                if !matches!(how, AcquireEnding::Held | AcquireEnding::Local) =>
            {
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
            Fact::Stepped { at, hold, effects, lease, .. } if hold.undo && confirmed_undo(effects) => {
                self.judge(*lease, *at)
            }
            Fact::Quiet { leases } => match leases.first() {
                Some(lease) => Err(format!("{lease:?} outlives everyone and its TTL")),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
