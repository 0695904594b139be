use crate::event::{Event, Observer, What};

/// Log lines through `tracing`: what an operator must see is a warning or an error and names the risk; the rest is
/// there at debug.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

/// All lines have the same fields, so that one query finds the story of a hold.
macro_rules! line {
    ($level:ident, $event:expr, $text:literal $(, $($field:tt)+)?) => {
        tracing::$level!(
            event = $event.what.label(),
            name = $event.name.as_ref().map(tracing::field::display),
            class = &*$event.class,
            fence = $event.fence.map(tracing::field::display),
            hold = $event.hold,
            $($($field)+,)?
            $text
        )
    };
}

impl Observer for Log {
    fn on(&self, event: &Event) {
        match &event.what {
            What::FellBack { cause, .. } => line!(
                error,
                event,
                "the store could not be asked: working with a local lock only, other replicas may do the same work",
                cause = %cause
            ),
            What::OverlapConfirmed => {
                line!(
                    error,
                    event,
                    "someone else held this lock while work went on: expect duplicates"
                );
            }
            What::Abandoned { reason, .. } => {
                line!(error, event, "lease lost, work fenced", reason = %reason)
            }
            What::Debt { lasts, .. } => line!(
                error,
                event,
                "release not confirmed: the lock stays taken until its lease runs out or the collector gets through",
                lasts = ?lasts
            ),
            What::ClockJump { by, ahead } => {
                line!(error, event, "the store's clock jumped: leases may end early or late", by = ?by, ahead = ahead);
            }
            What::Unavailable { cause, .. } => {
                line!(warn, event, "the store could not be asked: work refused (fail-closed)", cause = %cause);
            }
            What::RenewFailed { failures, unknown } => {
                line!(
                    warn,
                    event,
                    "renewal failed",
                    failures = failures,
                    unknown = unknown
                );
            }
            What::Unproven => line!(
                warn,
                event,
                "lease not proven any more: work goes on, overlap is measured"
            ),
            What::ProvenAgain { overlap, retaken } => {
                line!(warn, event, "lease proven again", overlap = ?overlap, retaken = retaken);
            }
            What::OverlapEnded { overlap } => {
                line!(warn, event, "work ended without a proven lease", overlap = ?overlap)
            }
            What::Resumed { age } => line!(warn, event, "a hold of an earlier process goes on", age = ?age),
            What::Healed { after } => line!(warn, event, "local-only hold has its lease now", after = ?after),
            What::NotOwned { op } => {
                line!(warn, event, "not owned: the lease went to someone else", op = ?op)
            }
            What::AlreadyLost { .. } => line!(
                warn,
                event,
                "released too late: the lease was already someone else's"
            ),
            What::ReleaseFailed { attempt, unknown } => {
                line!(
                    warn,
                    event,
                    "release failed",
                    attempt = attempt,
                    unknown = unknown
                );
            }
            What::DebtCleared { after, how } => {
                line!(warn, event, "debt cleared", after = ?after, how = ?how)
            }
            What::WouldStop { reason } => {
                line!(warn, event, "shadow policy: would have stopped this work", reason = %reason)
            }
            What::WouldRefuse { cause } => {
                line!(warn, event, "shadow policy: would have refused this work", cause = %cause);
            }
            What::TooLate => line!(warn, event, "a grant came too late to be used and was given back"),
            What::Broken { by } => line!(warn, event, "lock broken by an operator", by = by),
            What::PolicyChanged { change } => line!(warn, event, "policy changed", change = change),
            What::PolicyRefused { problem } => {
                line!(
                    error,
                    event,
                    "policy file not taken, the old policy stays in force",
                    problem = problem
                );
            }
            What::FenceRefused { newest } => {
                line!(warn, event, "a target refused a stale fence", newest = %newest)
            }
            What::Duplicate => line!(warn, event, "the same work ended twice"),
            What::Undone { how } => {
                line!(debug, event, "what nobody waits for any more was undone", how = ?how)
            }
            What::Acquired { .. }
            | What::Busy { .. }
            | What::Cancelled { .. }
            | What::Renewed { .. }
            | What::Released { .. }
            | What::Kept { .. } => line!(debug, event, "lock"),
        }
    }
}
