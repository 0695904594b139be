//! The invariants I1 to I6 and the liveness promise L1, as predicates on a state of the model.
//!
//! I1, I5 (first half) and I6 are read off the state. I2, I3, I4 and I5's second half are about a *step*: the step
//! that breaks one of them leaves a mark in [`State::breaches`](super::state::State), which is what the predicate reads.

use stateright::{Model as _, Property};

use super::protocol::Protocol;
use super::state::{Phase, State};

/// A numbered promise of the semantics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// At most one hold is within its deadline.
    I1,
    /// Fences grow with every grant.
    I2,
    /// No write of an older grant is applied after one of a newer grant, by number and in truth.
    I3,
    /// Only the owner renews or releases, and nothing revives an expired lease.
    I4,
    /// A holder within its deadline has a live lease in the store.
    I5Deadline,
    /// No work is begun past the deadline.
    I5Work,
    /// No lease belongs to an acquire whose release or undo has arrived, or that ended without a hold and owed none.
    I6,
    /// After the trouble has ended, the name becomes free.
    L1,
}

/// Marks that a step left: which promise it broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Breaches(pub u8);

impl Breaches {
    /// A fence that is not greater than every earlier one.
    pub const FENCE: u8 = 1;
    /// A stale write that was applied.
    pub const WRITE: u8 = 2;
    /// A message that changed a lease of another, or an expired one.
    pub const OWNER: u8 = 4;
    /// Work that was begun past the deadline.
    pub const WORK: u8 = 8;

    /// Leaves a mark.
    pub fn mark(&mut self, breach: u8) {
        self.0 |= breach;
    }

    fn free_of(self, breach: u8) -> bool {
        self.0 & breach == 0
    }
}

impl Promise {
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
            Self::I6 => "I6 no lease that nobody knows",
            Self::L1 => "L1 the name becomes free",
        }
    }

    /// As a property for the checker.
    #[must_use]
    pub fn property(self) -> Property<Protocol> {
        match self {
            Self::I1 => Property::always(self.name(), |_, state: &State| holders_in_time(state) <= 1),
            Self::I2 => Property::always(self.name(), |_, state: &State| {
                state.breaches.free_of(Breaches::FENCE)
            }),
            Self::I3 => Property::always(self.name(), |_, state: &State| {
                state.breaches.free_of(Breaches::WRITE)
            }),
            Self::I4 => Property::always(self.name(), |_, state: &State| {
                state.breaches.free_of(Breaches::OWNER)
            }),
            Self::I5Deadline => Property::always(self.name(), |_, state: &State| deadlines_covered(state)),
            Self::I5Work => Property::always(self.name(), |_, state: &State| {
                state.breaches.free_of(Breaches::WORK)
            }),
            Self::I6 => Property::always(self.name(), |_, state: &State| !orphaned(state)),
            Self::L1 => Property::eventually(self.name(), over_and_free),
        }
    }
}

fn holders_in_time(state: &State) -> usize {
    (0..state.clients.len()).filter(|&who| state.in_time(who)).count()
}

fn deadlines_covered(state: &State) -> bool {
    (0..state.clients.len())
        .filter(|&who| state.in_time(who))
        .all(|who| {
            let covered = state.live_lease().map(|lease| lease.token);
            covered.is_some_and(|token| Some(token) == state.token_of(who))
        })
}

fn orphaned(state: &State) -> bool {
    state.live_lease().is_some_and(|lease| {
        state
            .clients
            .get(usize::from(lease.token.client))
            .is_some_and(|client| client.settled & lease.token.bit() != 0)
    })
}

/// True in final states only. The checker forgets on which of two joining paths an `eventually` was met (it says so in
/// its source); a condition that only a state without successors can meet is not affected by that.
fn over_and_free(protocol: &Protocol, state: &State) -> bool {
    if state.now < protocol.config.end() {
        return false;
    }
    let mut left = Vec::new();
    protocol.actions(state, &mut left);
    left.is_empty() && state.live_lease().is_none()
}

/// A hold that its own client may still use.
pub(super) fn within_deadline(phase: &Phase, clock: u8) -> bool {
    matches!(phase, Phase::Holding { deadline, .. } if clock < *deadline)
}
