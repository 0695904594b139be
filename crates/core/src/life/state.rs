use std::time::Duration;

use crate::clock::Moment;
use crate::event::{Loss, What};
use crate::word::Fence;

/// Where a hold is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The lease is confirmed: the holder may act until the deadline.
    Proven {
        /// On the holder's own clock.
        deadline: Moment,
    },
    /// Work goes on without a lease that can be proven (`continue` classes).
    Unproven {
        /// Since when the overlap clock runs.
        since: Moment,
        /// The store said that it is gone: take it again instead of renewing it.
        gone: bool,
        /// Someone else was seen to hold it.
        confirmed: bool,
    },
    /// Exclusive in this process only (`fail-open` classes).
    LocalOnly {
        /// Since when.
        since: Moment,
        /// Someone else was seen to hold it.
        confirmed: bool,
    },
    /// Fenced. Nothing is renewed or released any more.
    Lost(Loss),
    /// The work is done; the lease is being given back.
    Releasing {
        /// Attempts so far; 0 while a renewal on its way is waited for.
        attempt: u32,
        /// An earlier attempt may have been applied.
        ambiguous: bool,
    },
    /// The foreground has gone on; the lease may still be there.
    Owing {
        /// Since when.
        since: Moment,
        /// The store has surely let go of it by then.
        until: Moment,
        /// Attempts so far.
        attempt: u32,
        /// Not a finished hold's lease but an acquire that nobody knows the end of.
        undo: bool,
    },
    /// Nothing more will happen.
    Done(Outcome),
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The lease is free.
    Released,
    /// The lease was not ours any more.
    AlreadyLost,
    /// The hold was abandoned, so the lease was left alone.
    Skipped,
    /// The release could not be confirmed; the lease is over at this moment at the latest.
    Debt {
        /// On the client's clock.
        until: Moment,
    },
    /// The class leaves the lease to run out, at this moment at the latest.
    Kept {
        /// On the client's clock.
        until: Moment,
    },
}

/// What can happen to a hold.
#[derive(Debug, Clone)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A renewal sent at this moment was applied.
    Renewed {
        /// Taken before it was sent.
        sent_at: Moment,
        /// What the store says was left of the lease.
        was_left: Option<Duration>,
    },
    /// A renewal was not answered.
    RenewFailed {
        /// It may have been applied.
        unknown: bool,
    },
    /// A renewal was answered: not yours.
    NotOwned,
    /// A lease was granted to a hold that had none.
    Healed {
        /// Taken before the ask was sent.
        sent_at: Moment,
        /// The new fence.
        fence: Fence,
        /// If the store could not give the class's TTL.
        ttl: Option<Duration>,
    },
    /// Healing found someone else there.
    HealBusy,
    /// Healing was not answered.
    HealFailed {
        /// It may have been applied.
        unknown: bool,
    },
    /// The work is done (or its guard was dropped).
    Release,
    /// The store's answer to a release.
    ReleaseAnswer(ReleaseAnswer),
    /// The class has changed.
    PolicyChanged(std::sync::Arc<crate::policy::Class>),
    /// The hold must end now, whatever its class: broken by an operator, shutdown.
    End(Loss),
}

/// The store's answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// It was ours and is free.
    Released,
    /// It was not ours.
    NotOwned,
    /// No answer.
    Failed {
        /// It may have been applied.
        unknown: bool,
    },
}

/// What the shell must do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask the store to extend the lease.
    Renew,
    /// Ask the store for the lease, with a token that is not the hold's old one.
    Heal,
    /// Ask the store to end the lease.
    Release {
        /// 1 for the first.
        attempt: u32,
    },
    /// The heal was granted and is wanted: its token is the hold's from now on.
    TakeOver,
    /// Undo the heal that is, or may be, granted: the hold has no use for it any more.
    GiveBack,
    /// Undo, from then on, what is still granted to the hold's token: by then its lease is over.
    Forget {
        /// On the client's clock.
        from: Moment,
    },
    /// Fire the hold's cancellation. Comes at most once in a life.
    Cancel(Loss),
    /// Tell the stream.
    Emit(What),
    /// The foreground's answer. Comes exactly once in a life.
    Finish(Outcome),
}
