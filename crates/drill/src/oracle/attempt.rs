//! The parts of an indexed history: acquires with their consequences, grants, applied writes and the
//! terms of classes.

use leasehold_core::Fence;

use crate::history::{ClientEvent, RecordedOutcome, RecordedRelease, WriteOutcome};

/// The terms of a class. Durations are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassTerms {
    /// How long the store keeps a lease.
    pub ttl: u64,
    /// How much of that the holder may use.
    pub usable: u64,
    /// Works without a lease if the store is unavailable.
    pub fail_open: bool,
    /// Works on when its lease is no longer proven.
    pub continues: bool,
}

/// What a holder believed when it checked its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldClaim {
    /// When it checked.
    pub at: u64,
    /// Until when it believed that it may work.
    pub until: u64,
    /// Until when it believed that no other client can be granted the name.
    pub proven_until: Option<u64>,
    /// Fence of the hold.
    pub fence: Option<Fence>,
}

/// A write to the target, as its writer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetWrite {
    /// The client's number of the write.
    pub number: u64,
    /// When it was answered.
    pub at: u64,
    /// Fence of the write.
    pub fence: Option<Fence>,
    /// The target's response.
    pub answer: WriteOutcome,
}

/// What the caller of the work received at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkReport {
    /// When it received it.
    pub at: u64,
    /// The work's result, if it received one.
    pub value: Option<u64>,
    /// It was told that the lease was lost.
    pub lost: bool,
}

/// One acquire and its consequences.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempt<'a> {
    /// The client that asked.
    pub who: &'a str,
    /// The client's number of the acquire.
    pub number: u64,
    /// The lock's name.
    pub name: &'a str,
    /// The class it was acquired under.
    pub class: &'a str,
    /// When it began.
    pub sent: u64,
    /// When and how it was answered; `None` if it never was.
    pub answered: Option<(u64, RecordedOutcome, Option<Fence>)>,
    /// What its holder believed, in order of time.
    pub claims: Vec<HoldClaim>,
    /// Its writes, in order of time.
    pub writes: Vec<TargetWrite>,
    /// When it began to release the lease.
    pub releasing: Option<u64>,
    /// When and how its release ended, and by when the lease is over.
    pub release_answered: Option<(u64, RecordedRelease, Option<u64>)>,
    /// The work's own result.
    pub returned: Option<u64>,
    /// What the caller of the work received.
    pub reported: Option<WorkReport>,
    /// The events of its hold, in order.
    pub events: Vec<(u64, &'a ClientEvent)>,
    /// Every fence it was granted, with the earliest time of that grant.
    pub granted: Vec<(Fence, u64)>,
}

impl Attempt<'_> {
    /// Time of the first event with this name.
    #[must_use]
    pub fn first_event_at(&self, event: &str) -> Option<u64> {
        self.events.iter().find(|(_, seen)| seen.event == event).map(|(at, _)| *at)
    }

    /// From when on its holder claims nothing more.
    #[must_use]
    pub fn claims_end(&self) -> Option<u64> {
        [self.releasing, self.first_event_at("abandoned")].into_iter().flatten().min()
    }

    /// When the hold ended for its holder, or when the acquire ended without one. `None` if unknown: it
    /// may have been granted.
    #[must_use]
    pub fn ended_at(&self) -> Option<u64> {
        match self.answered? {
            (_, RecordedOutcome::Held | RecordedOutcome::LocalOnly, _) => self.claims_end(),
            (_, RecordedOutcome::Unknown, _) => None,
            (at, ..) => Some(at),
        }
    }
}

/// A lease that the store granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantedLease<'a> {
    /// The lock's name.
    pub name: &'a str,
    /// The client it was granted to.
    pub who: &'a str,
    /// The client's number of the acquire.
    pub attempt: u64,
    /// Fence of the lease.
    pub fence: Fence,
    /// Earliest time of the grant.
    pub sent: u64,
    /// Latest time of the grant.
    pub at: u64,
}

/// A write that the target applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppliedWrite<'a> {
    /// When the target was read.
    pub at: u64,
    /// Position in the order of commits.
    pub place: u64,
    /// The lock's name.
    pub name: &'a str,
    /// The client that sent it.
    pub writer: &'a str,
    /// The client's number of the write.
    pub write: u64,
    /// The task that it finished.
    pub task: Option<u64>,
    /// Fence of the write.
    pub fence: Option<Fence>,
}
