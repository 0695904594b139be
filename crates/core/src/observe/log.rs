//! Log output of events.

use crate::event::{Event, EventKind, Observer};

/// Writes events through `tracing`. An operator's concern is a warning or an error and names the
/// risk; the rest is logged at debug level.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

// All lines have the same fields, so that one query finds every event of a hold.
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
    fn on_event(&self, event: &Event) {
        match &event.what {
            EventKind::FellBack { cause, .. } => line!(
                error,
                event,
                "the store could not be asked: working with a local lock only, other replicas may do the same work",
                cause = %cause
            ),
            EventKind::OverlapConfirmed => {
                line!(error, event, "another client held this lock while work went on: expect duplicates");
            }
            EventKind::Abandoned { reason, .. } => {
                line!(error, event, "lease lost, work fenced", reason = %reason)
            }
            EventKind::Debt { lasts, .. } => line!(
                error,
                event,
                "release not confirmed: the lock stays taken until its lease runs out or the collector gets through",
                lasts = ?lasts
            ),
            EventKind::ClockJump { by, ahead } => {
                line!(error, event, "the store's clock jumped: leases may end early or late", by = ?by, ahead = ahead);
            }
            EventKind::Unavailable { cause, .. } => {
                line!(warn, event, "the store could not be asked: work refused (fail-closed)", cause = %cause);
            }
            EventKind::RenewFailed { failures, unknown } => {
                line!(warn, event, "renewal failed", failures = failures, unknown = unknown);
            }
            EventKind::Unproven => {
                line!(warn, event, "lease not proven any more: work goes on, overlap is measured")
            }
            EventKind::ProvenAgain { overlap, retaken } => {
                line!(warn, event, "lease proven again", overlap = ?overlap, retaken = retaken);
            }
            EventKind::OverlapEnded { overlap } => {
                line!(warn, event, "work ended without a proven lease", overlap = ?overlap)
            }
            EventKind::Resumed { age } => {
                line!(warn, event, "a hold of an earlier process goes on", age = ?age)
            }
            EventKind::Healed { after } => {
                line!(warn, event, "local-only hold has its lease now", after = ?after)
            }
            EventKind::NotOwned { op } => {
                line!(warn, event, "not owned: another client holds the lease", op = ?op)
            }
            EventKind::AlreadyLost { .. } => {
                line!(warn, event, "released too late: another client already held the lease")
            }
            EventKind::ReleaseFailed { attempt, unknown } => {
                line!(warn, event, "release failed", attempt = attempt, unknown = unknown);
            }
            EventKind::DebtCleared { after, how } => {
                line!(warn, event, "debt cleared", after = ?after, how = ?how)
            }
            EventKind::WouldStop { reason } => {
                line!(warn, event, "shadow policy: would have stopped this work", reason = %reason)
            }
            EventKind::WouldRefuse { cause } => {
                line!(warn, event, "shadow policy: would have refused this work", cause = %cause);
            }
            EventKind::TooLate => line!(warn, event, "a grant came too late to be used and was given back"),
            EventKind::Broken { by } => line!(warn, event, "lock broken by an operator", by = by),
            EventKind::PolicyChanged { change } => line!(warn, event, "policy changed", change = change),
            EventKind::PolicyRefused { problem } => {
                line!(
                    error,
                    event,
                    "policy file not taken, the old policy stays in force",
                    problem = problem
                );
            }
            EventKind::FenceRefused { newest } => {
                line!(warn, event, "a target refused a stale fence", newest = %newest)
            }
            EventKind::Duplicate => line!(warn, event, "the same work ended twice"),
            EventKind::Undone { how } => {
                line!(debug, event, "an abandoned acquire was undone", how = ?how)
            }
            EventKind::Acquired { .. }
            | EventKind::Busy { .. }
            | EventKind::Cancelled { .. }
            | EventKind::Renewed { .. }
            | EventKind::Released { .. }
            | EventKind::Kept { .. } => line!(debug, event, "lock"),
        }
    }
}
