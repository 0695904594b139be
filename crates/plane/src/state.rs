//! The job states and their transitions: one table, used by the scheduler and checked again by every store.

use std::fmt;
use std::str::FromStr;

use leasehold_core::InvalidInput;
use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JobState {
    /// Submitted; no scheduler has taken it yet.
    #[default]
    Pending,
    /// A person must approve it first.
    ApprovalRequired,
    /// A scheduler has it and is about to dispatch it.
    Scheduled,
    /// About to be handed over; written before the hand-over.
    Dispatched,
    /// An owner works on it.
    Running,
    /// Waits for its next attempt.
    Retrying,
    /// Its work was done.
    Succeeded,
    /// Given up after its last attempt failed; it has a dead letter.
    Failed,
    /// Ended because a time-out or its deadline passed.
    Timeout,
    /// Cancelled by request.
    Cancelled,
    /// Rejected by a person.
    Denied,
    /// Put aside until a person has examined it.
    Quarantined,
}

use JobState::{
    ApprovalRequired, Cancelled, Denied, Dispatched, Failed, Pending, Quarantined, Retrying, Running,
    Scheduled, Succeeded, Timeout,
};

/// The states in which a job may be created.
pub const INITIAL_STATES: &[JobState] = &[Pending, ApprovalRequired];

/// The whole table: each state with the states that may follow it.
pub const TRANSITIONS: &[(JobState, &[JobState])] = &[
    (Pending, &[ApprovalRequired, Scheduled, Denied, Failed, Timeout, Cancelled]),
    (ApprovalRequired, &[Pending, Denied, Failed, Timeout, Cancelled]),
    (Scheduled, &[Dispatched, Retrying, Failed, Timeout, Cancelled]),
    (
        Dispatched,
        // Back to Scheduled: a failed hand-over is rolled back.
        &[Scheduled, Running, Succeeded, Failed, Retrying, Timeout, Cancelled, Quarantined],
    ),
    (Running, &[Succeeded, Failed, Retrying, Timeout, Cancelled, Quarantined]),
    (Retrying, &[Scheduled, Dispatched, Failed, Timeout, Cancelled]),
    // For an operator; no change in this crate makes this transition.
    (Succeeded, &[Quarantined]),
    (Failed, &[]),
    (Timeout, &[]),
    (Cancelled, &[]),
    (Denied, &[]),
    (Quarantined, &[]),
];

impl JobState {
    /// Whether the state `next` may follow this one.
    #[must_use]
    pub fn can_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }

    /// The states that may follow this one.
    #[must_use]
    pub fn successors(self) -> &'static [Self] {
        TRANSITIONS.iter().find(|(from, _)| *from == self).map_or(&[], |(_, to)| to)
    }

    /// The states that this one may follow. A store compares this list with the state it finds.
    #[must_use]
    pub fn predecessors(self) -> Vec<&'static str> {
        let may = |entry: &&(Self, &[Self])| entry.1.contains(&self);
        TRANSITIONS.iter().filter(may).map(|(from, _)| from.as_str()).collect()
    }

    /// The job has ended. A second transition into such a state is a duplicate.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Succeeded | Failed | Timeout | Cancelled | Denied | Quarantined)
    }

    /// A scheduler or worker owns the job; if that owner dies, the reconciler must take the job over.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Scheduled | Dispatched | Running)
    }

    /// The state's name, as stored and displayed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
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
        TRANSITIONS.iter().map(|(state, _)| *state)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = InvalidInput;
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let wanted = text.to_ascii_uppercase().replace('-', "_");
        Self::all().find(|state| state.as_str() == wanted).ok_or_else(|| {
            let known: Vec<_> = Self::all().map(Self::as_str).collect();
            InvalidInput::new("state", text, format!("is not a state; known are {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_matches_the_specification() {
        // A copy of the table in the specification, line by line.
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
    fn predecessors_are_the_inverse_of_successors() {
        for (from, to) in JobState::all().flat_map(|from| JobState::all().map(move |to| (from, to))) {
            assert_eq!(from.can_become(to), to.predecessors().contains(&from.as_str()), "{from} to {to}");
        }
    }

    #[test]
    fn ended_jobs_never_work_again() {
        // From an ended state, no state with work or waiting can be reached.
        for state in JobState::all().filter(|state| state.is_terminal()) {
            assert!(state.successors().iter().all(|next| next.is_terminal()), "{state}");
        }
        // Every other state can still end.
        for state in JobState::all().filter(|state| !state.is_terminal()) {
            assert!(state.successors().iter().any(|next| next.is_terminal()), "{state}");
        }
    }

    #[test]
    fn state_names_parse_back() {
        for state in JobState::all() {
            assert_eq!(state.as_str().parse::<JobState>().unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        let message = "DONE".parse::<JobState>().unwrap_err().to_string();
        assert!(message.contains("SUCCEEDED"), "{message}");
    }
}
