//! The one stream: every transition is one event. Logs, metrics, history and the checkers of tests only read it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::clock::{Moment, SharedClock};
use crate::store::Cause;
use crate::word::{Fence, Holder, Name};

/// Why a hold ended before its work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The store says that the lease is not ours any more.
    NotOwned,
    /// Renewal failed as often in a row as the class allows.
    MaxFailures,
    /// The last confirmed lease may run out before the work could be stopped any later.
    Deadline,
    /// The class's `max_hold` is over.
    MaxHold,
    /// A local-only hold healed and found someone else at work.
    HealConflict,
    /// An operator broke the lease.
    Broken,
    /// The client is shutting down and the hold did not finish in time.
    Shutdown,
    /// The task that renews died.
    KeeperGone,
}

impl Loss {
    /// The value of the metrics' `reason` label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotOwned => "not_owned",
            Self::MaxFailures => "max_failures",
            Self::Deadline => "deadline",
            Self::MaxHold => "max_hold",
            Self::HealConflict => "heal_conflict",
            Self::Broken => "broken",
            Self::Shutdown => "shutdown",
            Self::KeeperGone => "keeper_gone",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOwned => "the store says it is not ours any more",
            Self::MaxFailures => "renewal failed too often in a row",
            Self::Deadline => "the lease could not be confirmed before its deadline",
            Self::MaxHold => "max_hold is over",
            Self::HealConflict => "someone else held it while this hold was local-only",
            Self::Broken => "an operator broke it",
            Self::Shutdown => "the client shut down",
            Self::KeeperGone => "the renewing task died",
        })
    }
}

/// The verb that a *not owned* answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// While renewing.
    Renew,
    /// While releasing.
    Release,
}

/// How a debt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cleared {
    /// The store confirmed the release after all.
    Released,
    /// The lease has run out by itself.
    Expired,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A lease was granted.
    Acquired {
        /// From the call to the grant.
        took: Duration,
        /// The name was busy at first.
        waited: bool,
        /// Since the previous holder's lease ran out unreleased, as far as this waiter saw it.
        takeover: Option<Duration>,
        /// How much of the waiting was on a lease whose work was already done (this process's own debt).
        behind_debt: Option<Duration>,
    },
    /// Someone else had it until the wait was over.
    Busy {
        /// From the call to the answer.
        took: Duration,
        /// Who.
        holder: String,
        /// This very process.
        held_here: bool,
    },
    /// The store could not be asked and the class is fail-closed.
    Unavailable {
        /// From the call to the answer.
        took: Duration,
        /// Why.
        cause: Cause,
    },
    /// The caller dropped the acquire.
    Cancelled {
        /// From the call to the drop.
        took: Duration,
    },
    /// The store could not be asked and the class is fail-open: the work runs with a local lock only.
    FellBack {
        /// From the call to the decision.
        took: Duration,
        /// Why.
        cause: Cause,
    },
    /// A hold of an earlier process was taken up again.
    Resumed {
        /// How long it had been held by then.
        age: Duration,
    },
    /// A local-only hold got its lease after all.
    Healed {
        /// How long it was local-only.
        after: Duration,
    },
    /// A grant arrived too late to be used and was given back.
    TooLate,
    /// The lease was extended.
    Renewed {
        /// Share of the usable time that was left, 0 to 1: the early warning.
        left: f64,
        /// Round trip.
        took: Duration,
    },
    /// A renewal was not answered.
    RenewFailed {
        /// How many in a row.
        failures: u32,
        /// It may have been applied.
        unknown: bool,
    },
    /// The store's clock jumped by about this much while the lease was held.
    ClockJump {
        /// How far the store's remaining time was from what it should be.
        by: Duration,
        /// It was ahead: leases end early.
        ahead: bool,
    },
    /// The store answered *not owned*.
    NotOwned {
        /// To what.
        op: Op,
    },
    /// The hold was fenced: its cancellation has fired.
    Abandoned {
        /// Why.
        reason: Loss,
        /// How long it was held.
        held: Duration,
    },
    /// A shadow policy would have stopped the work here.
    WouldStop {
        /// Why.
        reason: Loss,
    },
    /// A shadow policy would have refused the work here.
    WouldRefuse {
        /// Why.
        cause: Cause,
    },
    /// Work goes on without a lease that can be proven.
    Unproven,
    /// The lease is confirmed again.
    ProvenAgain {
        /// How long it was not.
        overlap: Duration,
        /// It was gone and had to be taken anew, with a new fence.
        retaken: bool,
    },
    /// Someone else held the name while this hold worked.
    OverlapConfirmed,
    /// The work ended while unproven or local-only.
    OverlapEnded {
        /// How long it had been.
        overlap: Duration,
    },
    /// The lease was given back.
    Released {
        /// How long it was held.
        held: Duration,
        /// How many attempts it took.
        attempts: u32,
    },
    /// The lease is left to run out by itself, as the class wants.
    Kept {
        /// How long it was held.
        held: Duration,
    },
    /// The lease was no longer ours when it was to be given back.
    AlreadyLost {
        /// How long it was held.
        held: Duration,
    },
    /// One attempt to release was not answered.
    ReleaseFailed {
        /// Which.
        attempt: u32,
        /// It may have been applied.
        unknown: bool,
    },
    /// The release could not be confirmed in the foreground; the collector goes on.
    Debt {
        /// How long it was held.
        held: Duration,
        /// Until the lease is over by itself at the latest.
        lasts: Duration,
    },
    /// A debt is over.
    DebtCleared {
        /// How long it lasted.
        after: Duration,
        /// How it ended.
        how: Cleared,
    },
    /// What an acquire without a hold, or a hold that left its lease alone, may still be granted was undone.
    Undone {
        /// How it ended.
        how: Cleared,
    },
    /// An operator broke the lease of this name.
    Broken {
        /// Who and why.
        by: String,
    },
    /// A class changed.
    PolicyChanged {
        /// What, from, to, why, until: one line.
        change: String,
    },
    /// A policy file was not taken; the old policy stays in force.
    PolicyRefused {
        /// Why.
        problem: String,
    },
    /// A target refused a stale fence.
    FenceRefused {
        /// The newest fence the target has seen.
        newest: Fence,
    },
    /// The same end was reached twice downstream.
    Duplicate,
}

impl What {
    /// The event's name in logs, metrics and history.
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
    /// Grows by one with every event of a client.
    pub seq: u64,
    /// When, on the client's clock.
    pub at: Moment,
    /// When, for people.
    pub wall: SystemTime,
    /// Of which lock; none for policy events.
    pub name: Option<Name>,
    /// Of which class.
    pub class: Arc<str>,
    /// Who.
    pub holder: Holder,
    /// The hold's fence, if it has one.
    pub fence: Option<Fence>,
    /// Which hold or attempt of this client; the events of one share it.
    pub hold: u64,
    /// What.
    pub what: What,
}

impl Event {
    /// The name's namespace, the metrics' label.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.name.as_ref().map_or("default", Name::namespace)
    }
}

/// Reads the stream. Called in line, in order of `seq` per hold: be quick, never block.
pub trait Observer: Send + Sync + fmt::Debug {
    /// One event has happened.
    fn on(&self, event: &Event);
}

/// The stream's source.
#[derive(Debug)]
pub struct Events {
    seq: AtomicU64,
    clock: SharedClock,
    holder: Holder,
    observers: Vec<Arc<dyn Observer>>,
}

impl Events {
    /// A stream that these observers read.
    #[must_use]
    pub fn new(clock: SharedClock, holder: Holder, observers: Vec<Arc<dyn Observer>>) -> Self {
        Self {
            seq: AtomicU64::new(0),
            clock,
            holder,
            observers,
        }
    }

    /// Tells every observer.
    pub fn emit(&self, subject: &Subject<'_>, what: What) {
        let event = Event {
            seq: self.seq.fetch_add(1, Ordering::Relaxed),
            at: self.clock.now(),
            wall: self.clock.wall(),
            name: subject.name.cloned(),
            class: Arc::clone(subject.class),
            holder: subject.holder.unwrap_or(&self.holder).clone(),
            fence: subject.fence,
            hold: subject.hold,
            what,
        };
        for observer in &self.observers {
            // A reader's defect is its own: it must cost neither a lock nor another reader the event.
            let told = catch_unwind(AssertUnwindSafe(|| observer.on(&event)));
            if told.is_err() {
                tracing::error!(
                    ?observer,
                    event = event.what.label(),
                    "a reader of events panicked"
                );
            }
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Which lock.
    pub name: Option<&'a Name>,
    /// Which class.
    pub class: &'a Arc<str>,
    /// Which fence.
    pub fence: Option<Fence>,
    /// Which hold or attempt.
    pub hold: u64,
    /// Whose, if it is not the client's own.
    pub holder: Option<&'a Holder>,
}
