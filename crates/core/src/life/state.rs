//! States, inputs and effects of the hold machine.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::{EventKind, Loss};
use crate::types::Fence;

/// The state of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// The lease is confirmed: the work may act until the deadline.
    Proven {
        /// On the client's clock.
        deadline: Moment,
    },
    /// Work continues without a lease that can be proven (`continue` classes).
    Unproven {
        /// Start of the measured overlap.
        since: Moment,
        /// The store answered *not owned*: acquire again instead of renewing.
        not_owned: bool,
        /// Another holder was observed.
        confirmed: bool,
    },
    /// Exclusive in this process only (`fail-open` classes).
    LocalOnly {
        /// Start of the measured overlap.
        since: Moment,
        /// Another holder was observed.
        confirmed: bool,
    },
    /// Fenced. Nothing is renewed or released any more.
    Lost(Loss),
    /// The work is done and the release is in progress.
    Releasing {
        /// Attempts so far; 0 while the release waits for a renewal in flight.
        attempt: u32,
        /// An earlier attempt may have been applied.
        ambiguous: bool,
    },
    /// The caller has been answered, but the lease may still exist.
    Debt {
        /// When the foreground gave up, or the undo starts.
        since: Moment,
        /// The lease has expired for certain at this moment.
        until: Moment,
        /// Attempts so far, foreground included; 0 before an undo starts.
        attempt: u32,
        /// Not a finished hold's lease but an acquire with unknown outcome.
        undo: bool,
    },
    /// The hold ended with this outcome.
    Done(ReleaseOutcome),
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The release was confirmed, or there was no lease.
    Released,
    /// The lease no longer belonged to this hold.
    AlreadyLost,
    /// The hold was abandoned, so the lease was left alone.
    Skipped,
    /// The release was not confirmed; the lease expires by `until` at the latest.
    Debt {
        /// On the client's clock.
        until: Moment,
    },
    /// The class leaves the lease to expire, by `until` at the latest.
    Kept {
        /// On the client's clock.
        until: Moment,
    },
}

/// An input of the machine.
#[derive(Debug, Clone)]
pub enum Input {
    /// A timer is due.
    Tick,
    /// A renewal was applied.
    Renewed {
        /// Send time of the renewal.
        sent_at: Moment,
        /// Remaining time just before the renewal, if the store knows it.
        remaining_before: Option<Duration>,
    },
    /// A renewal failed.
    RenewFailed {
        /// The renewal may have been applied.
        unknown: bool,
    },
    /// A renewal was answered with *not owned*.
    NotOwned,
    /// A heal was granted.
    Healed {
        /// Send time of the heal.
        sent_at: Moment,
        /// The fence of the new lease.
        fence: Fence,
        /// The granted lifetime, if it differs from the class's.
        ttl: Option<Duration>,
    },
    /// A heal found another holder.
    HealBusy,
    /// A heal failed.
    HealFailed {
        /// The heal may have been applied.
        unknown: bool,
    },
    /// The work is done, or its guard was dropped.
    Release,
    /// The result of a release call.
    ReleaseAnswered(ReleaseResult),
    /// The class in force is another one.
    PolicyChanged(std::sync::Arc<crate::policy::Class>),
    /// The hold must end now, whatever its class: broken by an operator, or shutdown.
    ForceEnd(Loss),
}

/// The result of one release call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseResult {
    /// The lease was ended.
    Released,
    /// No lease of this token existed.
    NotOwned,
    /// The call failed.
    Failed {
        /// The release may have been applied.
        unknown: bool,
    },
}

/// An action that the keeper must execute.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a renewal.
    Renew,
    /// Acquire the lease again, with another token than the hold's old one.
    Heal,
    /// Send a release.
    Release {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// The heal was granted: its token is the hold's token from now on.
    AdoptHealToken,
    /// Undo the heal, which was or may have been granted and is not needed.
    UndoHeal,
    /// Undo later grants to the hold's token, starting when its lease has expired.
    UndoLate {
        /// Start of the undo, on the client's clock.
        from: Moment,
    },
    /// Fire the hold's cancellation. At most once per hold.
    Cancel(Loss),
    /// Emit an event.
    Emit(EventKind),
    /// Answer the caller of the release. Exactly once per hold.
    Finish(ReleaseOutcome),
}
