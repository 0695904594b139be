//! The event stream: every transition is one event. Logs, metrics, history and test checkers only
//! read it.

mod loss;
mod stream;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use loss::Loss;
pub use stream::{EventStream, EventSubject};

use crate::clock::Moment;
use crate::store::StoreErrorKind;
use crate::types::{Fence, Holder, Name};

/// The operation that the store answered with *not owned*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseOp {
    /// A renewal found it.
    Renew,
    /// A release found it.
    Release,
}

/// How a debt or an undo ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DebtResolution {
    /// The store confirmed the release.
    Released,
    /// The lease must have expired by itself.
    Expired,
}

/// The kind of an event, with its data.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The store granted a lease.
    Acquired {
        /// Time from the call to the grant.
        took: Duration,
        /// The name was busy at the first request.
        waited: bool,
        /// Time from the expiry of the previous holder's unreleased lease to the grant, as far as
        /// this waiter observed it.
        takeover: Option<Duration>,
        /// Time spent waiting for a lease of this process whose work had finished (its own debt).
        behind_debt: Option<Duration>,
    },
    /// Another holder kept the lock until the wait ended.
    Busy {
        /// Time from the call to the result.
        took: Duration,
        /// The other holder.
        holder: String,
        /// The holder is this process.
        held_here: bool,
    },
    /// The store did not answer and the class is fail-closed.
    Unavailable {
        /// Time from the call to the result.
        took: Duration,
        /// The kind of the last store error.
        cause: StoreErrorKind,
    },
    /// The caller dropped the acquire future.
    Cancelled {
        /// Time from the call to the drop.
        took: Duration,
    },
    /// The store did not answer and the class is fail-open: the work runs with a local lock only.
    FellBack {
        /// Time from the call to the decision.
        took: Duration,
        /// The kind of the last store error.
        cause: StoreErrorKind,
    },
    /// A hold of an earlier process was resumed.
    Resumed {
        /// How long it had been held until then.
        age: Duration,
    },
    /// A local-only hold was granted its lease.
    Healed {
        /// How long it was local-only.
        after: Duration,
    },
    /// A grant arrived after its own deadline and was released.
    TooLate,
    /// The lease was extended.
    Renewed {
        /// Share of the usable time that was left, 0 to 1. Low values are the early warning.
        left: f64,
        /// Round trip of the renewal.
        took: Duration,
    },
    /// A renewal failed.
    RenewFailed {
        /// Consecutive failures so far.
        failures: u32,
        /// The renewal may have been applied.
        unknown: bool,
    },
    /// A renewal showed that the store's clock jumped.
    ClockJump {
        /// Difference between the store's remaining time and the expected one, beyond the drift.
        by: Duration,
        /// The store's clock went forward: leases end early.
        ahead: bool,
    },
    /// The store answered *not owned*.
    NotOwned {
        /// The operation that it answered.
        op: LeaseOp,
    },
    /// The hold was fenced: its cancellation has fired.
    Abandoned {
        /// The reason for the loss.
        reason: Loss,
        /// How long the lock was held.
        held: Duration,
    },
    /// A shadow policy would have stopped the work here.
    WouldStop {
        /// The reason that an enforced policy would have given.
        reason: Loss,
    },
    /// A shadow policy would have refused the work here.
    WouldRefuse {
        /// The kind of the last store error.
        cause: StoreErrorKind,
    },
    /// Work continues without a lease that can be proven.
    Unproven,
    /// The lease of an unproven hold is confirmed again.
    ProvenAgain {
        /// How long the hold was unproven.
        overlap: Duration,
        /// The lease was lost and acquired again, with a new fence.
        retaken: bool,
    },
    /// Another client held the name while this hold worked.
    OverlapConfirmed,
    /// The work ended while unproven or local-only.
    OverlapEnded {
        /// How long the hold had been in that state.
        overlap: Duration,
    },
    /// The release was confirmed.
    Released {
        /// How long the lock was held.
        held: Duration,
        /// Attempts that the release took.
        attempts: u32,
    },
    /// The lease is left to expire, as the class states.
    Kept {
        /// How long the lock was held.
        held: Duration,
    },
    /// The lease no longer belonged to this hold at its release.
    AlreadyLost {
        /// How long the lock was held.
        held: Duration,
    },
    /// One attempt to release failed.
    ReleaseFailed {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The release may have been applied.
        unknown: bool,
    },
    /// The release was not confirmed in the foreground; the background attempts continue.
    Debt {
        /// How long the lock was held.
        held: Duration,
        /// Time until the lease must have expired.
        lasts: Duration,
    },
    /// A debt ended.
    DebtCleared {
        /// How long the debt lasted.
        after: Duration,
        /// By a confirmed release or by expiry.
        how: DebtResolution,
    },
    /// An undo ended: no late request of an unused token can leave a lease any more.
    Undone {
        /// By a confirmed release or by expiry.
        how: DebtResolution,
    },
    /// An operator ended the lease early of this name.
    Broken {
        /// The operator and the reason, as given.
        by: String,
    },
    /// A value of a class changed.
    PolicyChanged {
        /// Field, old value, new value and reason, in one line.
        change: String,
    },
    /// A policy file was refused; the previous policy stays in force.
    PolicyRefused {
        /// The problems of the file, one per line.
        problem: String,
    },
    /// A target refused a stale fence.
    FenceRefused {
        /// The newest fence that the target has seen.
        newest: Fence,
    },
    /// The same work was completed twice downstream.
    Duplicate,
}

impl EventKind {
    /// The event's name in logs, metrics and history. Part of the documented interface.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Acquired { .. } => "acquired",
            Self::Busy { .. } => "busy",
            Self::Unavailable { .. } => "unavailable",
            Self::Cancelled { .. } => "cancelled",
            Self::FellBack { .. } => "fell_back",
            Self::Resumed { .. } => "resumed",
            Self::Healed { .. } => "healed",
            Self::TooLate => "too_late",
            Self::Renewed { .. } => "renewed",
            Self::RenewFailed { .. } => "renew_failed",
            Self::ClockJump { .. } => "clock_jump",
            Self::NotOwned { .. } => "not_owned",
            Self::Abandoned { .. } => "abandoned",
            Self::WouldStop { .. } => "would_stop",
            Self::WouldRefuse { .. } => "would_refuse",
            Self::Unproven => "unproven",
            Self::ProvenAgain { .. } => "proven_again",
            Self::OverlapConfirmed => "overlap_confirmed",
            Self::OverlapEnded { .. } => "overlap_ended",
            Self::Released { .. } => "released",
            Self::Kept { .. } => "kept",
            Self::AlreadyLost { .. } => "already_lost",
            Self::ReleaseFailed { .. } => "release_failed",
            Self::Debt { .. } => "debt",
            Self::DebtCleared { .. } => "debt_cleared",
            Self::Undone { .. } => "undone",
            Self::Broken { .. } => "broken",
            Self::PolicyChanged { .. } => "policy_changed",
            Self::PolicyRefused { .. } => "policy_refused",
            Self::FenceRefused { .. } => "fence_refused",
            Self::Duplicate => "duplicate",
        }
    }
}

/// One transition.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Sequence number within the client, without gaps.
    pub seq: u64,
    /// Time on the client's clock.
    pub at: Moment,
    /// Wall clock time, for display only.
    pub wall: SystemTime,
    /// The lock's name; `None` for policy events.
    pub name: Option<Name>,
    /// The class concerned.
    pub class: Arc<str>,
    /// The holder concerned: the client's own, or the one of the token that was used.
    pub holder: Holder,
    /// The fence of the hold, if it has one.
    pub fence: Option<Fence>,
    /// Id of the hold or acquire within this client; all its events share it.
    pub hold: u64,
    /// The kind of the event, with its data.
    pub what: EventKind,
}

impl Event {
    /// The namespace of the name, for the metrics label.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.name.as_ref().map_or("default", Name::namespace)
    }
}

/// A reader of the event stream. Called synchronously, in order of `seq` per hold: it must be quick
/// and never block.
pub trait Observer: Send + Sync + fmt::Debug {
    /// Handles one event.
    fn on_event(&self, event: &Event);
}
