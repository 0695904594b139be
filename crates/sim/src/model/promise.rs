//! The invariants I1 to I6 and the liveness promise L1, as predicates on a state of the model.
//!
//! I1, the first half of I5, and I6 are read from the state. I2, I3, I4 and the second half of I5 are
//! about a *step*. A step that breaks one of them sets a flag in `ModelState::breaches`, which the
//! predicate reads.

use stateright::{Model as _, Property};

use super::protocol::ProtocolModel;
use super::state::{ClientPhase, ModelState};

/// A numbered promise of the semantics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelPromise {
    /// At most one hold is within its deadline.
    I1,
    /// Fences grow with every grant.
    I2,
    /// No write of an older grant is applied after one of a newer grant, by fence and by true order.
    I3,
    /// Only the owner renews or releases, and nothing revives an expired lease.
    I4,
    /// A holder within its deadline has a live lease in the store.
    I5Deadline,
    /// No work is begun past the deadline.
    I5Work,
    /// No lease belongs to an acquire that was released or undone, or that ended without a hold and owed
    /// no undo.
    I6,
    /// After the faults, the name becomes free.
    L1,
}

/// Flags for the promises that earlier steps broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Breaches(pub u8);

impl Breaches {
    /// A fence was not greater than every earlier one.
    pub const FENCE: u8 = 1;
    /// A stale write was applied.
    pub const WRITE: u8 = 2;
    /// A message changed another owner's lease, or an expired one.
    pub const OWNER: u8 = 4;
    /// Work was started past the deadline.
    pub const WORK: u8 = 8;

    /// Sets a flag.
    pub fn mark(&mut self, breach: u8) {
        self.0 |= breach;
    }

    fn is_clear(self, breach: u8) -> bool {
        self.0 & breach == 0
    }
}

impl ModelPromise {
    /// The name under which the checker reports it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::I1 => "I1 one holder within its deadline",
            Self::I2 => "I2 fences grow",
            Self::I3 => "I3 no stale write is applied",
            Self::I4 => "I4 only the owner changes a living lease",
            Self::I5Deadline => "I5 the deadline comes before the expiry",
            Self::I5Work => "I5 no work past the deadline",
            Self::I6 => "I6 no lease that no client knows",
            Self::L1 => "L1 the name becomes free",
        }
    }

    /// The promise as a property for the checker.
    #[must_use]
    pub fn property(self) -> Property<ProtocolModel> {
        match self {
            Self::I1 => {
                Property::always(self.name(), |_, state: &ModelState| count_valid_holders(state) <= 1)
            }
            Self::I2 => Property::always(self.name(), |_, state: &ModelState| {
                state.breaches.is_clear(Breaches::FENCE)
            }),
            Self::I3 => Property::always(self.name(), |_, state: &ModelState| {
                state.breaches.is_clear(Breaches::WRITE)
            }),
            Self::I4 => Property::always(self.name(), |_, state: &ModelState| {
                state.breaches.is_clear(Breaches::OWNER)
            }),
            Self::I5Deadline => {
                Property::always(self.name(), |_, state: &ModelState| deadlines_are_covered(state))
            }
            Self::I5Work => {
                Property::always(self.name(), |_, state: &ModelState| state.breaches.is_clear(Breaches::WORK))
            }
            Self::I6 => Property::always(self.name(), |_, state: &ModelState| !has_orphaned_lease(state)),
            Self::L1 => Property::eventually(self.name(), is_over_and_free),
        }
    }
}

fn count_valid_holders(state: &ModelState) -> usize {
    (0..state.clients.len()).filter(|&who| state.is_within_deadline(who)).count()
}

fn deadlines_are_covered(state: &ModelState) -> bool {
    (0..state.clients.len()).filter(|&who| state.is_within_deadline(who)).all(|who| {
        let covered = state.live_lease().map(|lease| lease.token);
        covered.is_some_and(|token| Some(token) == state.token_of(who))
    })
}

fn has_orphaned_lease(state: &ModelState) -> bool {
    state.live_lease().is_some_and(|lease| {
        state
            .clients
            .get(usize::from(lease.token.client))
            .is_some_and(|client| client.settled & lease.token.bit() != 0)
    })
}

/// Whether the run is over and the name is free.
fn is_over_and_free(protocol: &ProtocolModel, state: &ModelState) -> bool {
    // True in final states only. Where two paths join, the checker forgets on which an `eventually` was
    // met (its source says so). A condition that only final states can meet is not affected.
    if state.now < protocol.config.last_tick() {
        return false;
    }
    let mut left = Vec::new();
    protocol.actions(state, &mut left);
    left.is_empty() && state.live_lease().is_none()
}

/// Whether the client may still use the hold.
pub(super) fn within_deadline(phase: &ClientPhase, clock: u8) -> bool {
    matches!(phase, ClientPhase::Holding { deadline, .. } if clock < *deadline)
}
