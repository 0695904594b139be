//! What a history is made of once it is in order: acquires with what came of them, grants, rows of the target, and the terms
//! of their classes.

use leasehold_core::Fence;

use crate::history::{Answer, Transition, Wrote};

/// The terms of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease lives.
    pub ttl: u64,
    /// How much of that a holder may use.
    pub usable: u64,
    /// Runs without a lease if the store cannot be asked.
    pub fail_open: bool,
    /// Goes on when a lease can no longer be proven.
    pub continues: bool,
}

/// A holder looked and believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// When.
    pub at: u64,
    /// Until when it believed it may act.
    pub until: u64,
    /// Until when it believed that nobody else can be granted it.
    pub proven_until: Option<u64>,
    /// With which fence.
    pub fence: Option<Fence>,
}

/// A write at the target, as its writer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Which of the client's writes.
    pub number: u64,
    /// When it was answered.
    pub at: u64,
    /// With which fence.
    pub fence: Option<Fence>,
    /// What the target said.
    pub answer: Wrote,
}

/// How the caller of the work was told of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// When.
    pub at: u64,
    /// The work's result, if it was handed on.
    pub value: Option<u64>,
    /// The lease was lost.
    pub lost: bool,
}

/// One acquire and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt<'a> {
    /// Whose.
    pub who: &'a str,
    /// Which of the client's.
    pub number: u64,
    /// Of which lock.
    pub name: &'a str,
    /// Under which class.
    pub class: &'a str,
    /// When it began.
    pub sent: u64,
    /// When and how it was answered; `None` if that is unknown.
    pub answered: Option<(u64, Answer, Option<Fence>)>,
    /// What its holder believed, in order.
    pub claims: Vec<Claim>,
    /// What its holder wrote, in order.
    pub writes: Vec<Write>,
    /// When it began to give the lease back.
    pub releasing: Option<u64>,
    /// The work's own result.
    pub returned: Option<u64>,
    /// What the caller was told.
    pub reported: Option<Ending>,
    /// The events of its hold, in order.
    pub events: Vec<(u64, &'a Transition)>,
    /// Every fence that it was granted, and before when that was not.
    pub granted: Vec<(Fence, u64)>,
}

impl Attempt<'_> {
    /// When the first event of this name came.
    #[must_use]
    pub fn first(&self, event: &str) -> Option<u64> {
        self.events
            .iter()
            .find(|(_, seen)| seen.event == event)
            .map(|(at, _)| *at)
    }

    /// From when on its holder claims nothing more.
    #[must_use]
    pub fn over(&self) -> Option<u64> {
        [self.releasing, self.first("abandoned")]
            .into_iter()
            .flatten()
            .min()
    }

    /// From when on it is over: the hold for its holder, or an acquire that was answered without one. Nothing if that is
    /// unknown: it may have been granted all the same.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        match self.answered? {
            (_, Answer::Held | Answer::LocalOnly, _) => self.over(),
            (_, Answer::Unknown, _) => None,
            (at, ..) => Some(at),
        }
    }
}

/// A lease that the store has granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant<'a> {
    /// Of which lock.
    pub name: &'a str,
    /// To whom.
    pub who: &'a str,
    /// To which attempt of theirs.
    pub attempt: u64,
    /// With which fence.
    pub fence: Fence,
    /// Not before.
    pub sent: u64,
    /// Not after.
    pub at: u64,
}

/// A row of the target's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied<'a> {
    /// When the ledger was read.
    pub at: u64,
    /// The place in the order of commits.
    pub place: u64,
    /// Under which lock.
    pub name: &'a str,
    /// Whose.
    pub writer: &'a str,
    /// Which of theirs.
    pub write: u64,
    /// The task that it ended.
    pub task: Option<u64>,
    /// With which fence.
    pub fence: Option<Fence>,
}
