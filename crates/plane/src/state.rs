//! A job's states, and which may follow which: one table, read by the scheduler and checked again by every store.

use std::fmt;
use std::str::FromStr;

use leasehold_core::Invalid;
use serde::{Deserialize, Serialize};

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JobState {
    /// Submitted; a scheduler has not taken it yet.
    #[default]
    Pending,
    /// A person must approve it first.
    ApprovalRequired,
    /// A scheduler has it and is about to dispatch it.
    Scheduled,
    /// It may be handed over; this is written before it is.
    Dispatched,
    /// Its work goes on.
    Running,
    /// It waits for its next attempt.
    Retrying,
    /// Done.
    Succeeded,
    /// Given up; it is in the dead letters.
    Failed,
    /// Its time was over.
    Timeout,
    /// Someone called it off.
    Cancelled,
    /// Someone said no.
    Denied,
    /// Nobody should touch it before a person has looked at it.
    Quarantined,
}

use JobState::{
    ApprovalRequired, Cancelled, Denied, Dispatched, Failed, Pending, Quarantined, Retrying, Running,
    Scheduled, Succeeded, Timeout,
};

/// What a new job may be.
pub const FIRST: &[JobState] = &[Pending, ApprovalRequired];

/// The whole table: from each state, what may follow.
pub const TABLE: &[(JobState, &[JobState])] = &[
    (
        Pending,
        &[ApprovalRequired, Scheduled, Denied, Failed, Timeout, Cancelled],
    ),
    (ApprovalRequired, &[Pending, Denied, Failed, Timeout, Cancelled]),
    (Scheduled, &[Dispatched, Retrying, Failed, Timeout, Cancelled]),
    (
        Dispatched,
        // Back to Scheduled: the hand-over failed and is rolled back.
        &[
            Scheduled,
            Running,
            Succeeded,
            Failed,
            Retrying,
            Timeout,
            Cancelled,
            Quarantined,
        ],
    ),
    (
        Running,
        &[Succeeded, Failed, Retrying, Timeout, Cancelled, Quarantined],
    ),
    (Retrying, &[Scheduled, Dispatched, Failed, Timeout, Cancelled]),
    (Succeeded, &[Quarantined]),
    (Failed, &[]),
    (Timeout, &[]),
    (Cancelled, &[]),
    (Denied, &[]),
    (Quarantined, &[]),
];

impl JobState {
    /// May `next` follow?
    #[must_use]
    pub fn can_become(self, next: Self) -> bool {
        self.next().contains(&next)
    }

    /// What may follow.
    #[must_use]
    pub fn next(self) -> &'static [Self] {
        TABLE
            .iter()
            .find(|(from, _)| *from == self)
            .map_or(&[], |(_, to)| to)
    }

    /// What it may follow: the list that a store compares with what it finds.
    #[must_use]
    pub fn before(self) -> Vec<&'static str> {
        let may = |entry: &&(Self, &[Self])| entry.1.contains(&self);
        TABLE.iter().filter(may).map(|(from, _)| from.word()).collect()
    }

    /// The job's work has come to its end, one way or another. Reaching such a state twice is a duplicate.
    #[must_use]
    pub fn ended(self) -> bool {
        matches!(
            self,
            Succeeded | Failed | Timeout | Cancelled | Denied | Quarantined
        )
    }

    /// A scheduler has it in its hands: if that scheduler dies, somebody must notice.
    #[must_use]
    pub fn in_hands(self) -> bool {
        matches!(self, Scheduled | Dispatched | Running)
    }

    /// As it is stored and shown.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Pending => "PENDING",
            ApprovalRequired => "APPROVAL_REQUIRED",
            Scheduled => "SCHEDULED",
            Dispatched => "DISPATCHED",
            Running => "RUNNING",
            Retrying => "RETRYING",
            Succeeded => "SUCCEEDED",
            Failed => "FAILED",
            Timeout => "TIMEOUT",
            Cancelled => "CANCELLED",
            Denied => "DENIED",
            Quarantined => "QUARANTINED",
        }
    }

    /// Every state, in the table's order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(state, _)| *state)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for JobState {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let wanted = text.to_ascii_uppercase().replace('-', "_");
        Self::all().find(|state| state.word() == wanted).ok_or_else(|| {
            let known: Vec<_> = Self::all().map(Self::word).collect();
            Invalid::new(
                "state",
                text,
                format!("is not a state; known are {}", known.join(", ")),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_contracts() {
        // As the design states it, line by line.
        let contract = "
            PENDING: APPROVAL_REQUIRED SCHEDULED DENIED FAILED TIMEOUT CANCELLED
            APPROVAL_REQUIRED: PENDING DENIED FAILED TIMEOUT CANCELLED
            SCHEDULED: DISPATCHED RETRYING FAILED TIMEOUT CANCELLED
            DISPATCHED: SCHEDULED RUNNING SUCCEEDED FAILED RETRYING TIMEOUT CANCELLED QUARANTINED
            RUNNING: SUCCEEDED FAILED RETRYING TIMEOUT CANCELLED QUARANTINED
            RETRYING: SCHEDULED DISPATCHED FAILED TIMEOUT CANCELLED
            SUCCEEDED: QUARANTINED
            FAILED:
            TIMEOUT:
            CANCELLED:
            DENIED:
            QUARANTINED:";
        for line in contract.lines().filter(|line| line.contains(':')) {
            let (from, to) = line.trim().split_once(':').unwrap();
            let from: JobState = from.parse().unwrap();
            let to: Vec<JobState> = to.split_whitespace().map(|word| word.parse().unwrap()).collect();
            for other in JobState::all() {
                assert_eq!(from.can_become(other), to.contains(&other), "{from} to {other}");
            }
        }
    }

    #[test]
    fn before_is_next_read_backwards() {
        for (from, to) in JobState::all().flat_map(|from| JobState::all().map(move |to| (from, to))) {
            assert_eq!(
                from.can_become(to),
                to.before().contains(&from.word()),
                "{from} to {to}"
            );
        }
    }

    #[test]
    fn what_has_ended_never_works_again() {
        // By walking: from an ended state no state can be reached in which work is done or waited for.
        for state in JobState::all().filter(|state| state.ended()) {
            assert!(state.next().iter().all(|next| next.ended()), "{state}");
        }
        // And every other state can still end.
        for state in JobState::all().filter(|state| !state.ended()) {
            assert!(state.next().iter().any(|next| next.ended()), "{state}");
        }
    }

    #[test]
    fn words_read_back() {
        for state in JobState::all() {
            assert_eq!(state.word().parse::<JobState>().unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        let said = "DONE".parse::<JobState>().unwrap_err().to_string();
        assert!(said.contains("SUCCEEDED"), "{said}");
    }
}
