//! The metrics that each event changes.

use std::time::Duration;

use crate::event::{EventKind, LeaseOp};

/// Calls `add` with name, label value and amount for every metric that an event changes.
/// [`METRICS`](super::METRICS) describes the metrics and names their labels.
pub fn event_metrics(what: &EventKind, mut add: impl FnMut(&'static str, &'static str, f64)) {
    let secs = |duration: &Duration| duration.as_secs_f64();
    match what {
        EventKind::Acquired { took, takeover, behind_debt, .. } => {
            add("acquire_total", "acquired", 1.0);
            add("acquire_seconds", "", secs(took));
            if let Some(takeover) = takeover {
                add("takeover_total", "", 1.0);
                add("takeover_seconds", "", secs(takeover));
            }
            if let Some(behind) = behind_debt {
                add("busy_after_debt_seconds", "", secs(behind));
            }
        }
        EventKind::Busy { took, .. } => {
            add("acquire_total", "busy", 1.0);
            add("acquire_seconds", "", secs(took));
        }
        EventKind::Unavailable { took, .. } => {
            add("acquire_total", "unavailable", 1.0);
            add("acquire_seconds", "", secs(took));
        }
        EventKind::Cancelled { took } => {
            add("acquire_total", "cancelled", 1.0);
            add("acquire_seconds", "", secs(took));
        }
        EventKind::FellBack { took, .. } => {
            add("acquire_total", "fell_back", 1.0);
            add("acquire_seconds", "", secs(took));
            add("fallback_total", "", 1.0);
        }
        EventKind::Resumed { .. } => add("resumed_total", "", 1.0),
        EventKind::Healed { .. } => add("healed_total", "", 1.0),
        EventKind::TooLate => add("too_late_total", "", 1.0),
        EventKind::Renewed { took, .. } => {
            add("renew_total", "renewed", 1.0);
            add("renew_seconds", "", secs(took));
        }
        EventKind::RenewFailed { unknown, .. } => {
            add("renew_total", if *unknown { "unknown" } else { "failed" }, 1.0)
        }
        EventKind::ClockJump { .. } => add("clock_jump_total", "", 1.0),
        EventKind::NotOwned { op } => match op {
            // A renewal that is not owned is also a renewal outcome; a release reports its outcome
            // as `already_lost`.
            LeaseOp::Renew => {
                add("renew_total", "not_owned", 1.0);
                add("not_owned_total", "renew", 1.0);
            }
            LeaseOp::Release => add("not_owned_total", "release", 1.0),
        },
        EventKind::Abandoned { reason, held } => {
            add("abandoned_total", reason.label(), 1.0);
            add("held_seconds", "", secs(held));
        }
        EventKind::WouldStop { reason } => add("would_stop_total", reason.label(), 1.0),
        EventKind::WouldRefuse { .. } => add("would_refuse_total", "", 1.0),
        EventKind::Unproven => add("unproven_total", "", 1.0),
        EventKind::ProvenAgain { overlap, .. } | EventKind::OverlapEnded { overlap } => {
            add("overlap_seconds_total", "", secs(overlap));
        }
        EventKind::OverlapConfirmed => add("overlap_confirmed_total", "", 1.0),
        EventKind::Released { held, attempts } => {
            add("release_total", "released", 1.0);
            add("release_attempts", "", f64::from(*attempts));
            add("held_seconds", "", secs(held));
        }
        EventKind::Kept { held } => {
            add("release_total", "kept", 1.0);
            add("held_seconds", "", secs(held));
        }
        EventKind::AlreadyLost { held } => {
            add("release_total", "already_lost", 1.0);
            add("held_seconds", "", secs(held));
        }
        EventKind::ReleaseFailed { .. } => add("release_failed_total", "", 1.0),
        EventKind::Debt { held, .. } => {
            add("release_total", "debt", 1.0);
            add("debt_holds", "", 1.0);
            add("held_seconds", "", secs(held));
        }
        EventKind::DebtCleared { after, .. } => {
            add("debt_holds", "", -1.0);
            add("debt_seconds_total", "", secs(after));
        }
        EventKind::Undone { .. } => add("undone_total", "", 1.0),
        EventKind::Broken { .. } => add("broken_total", "", 1.0),
        EventKind::PolicyChanged { .. } => add("policy_changed_total", "", 1.0),
        EventKind::PolicyRefused { .. } => add("policy_refused_total", "", 1.0),
        EventKind::FenceRefused { .. } => add("fence_refused_total", "", 1.0),
        EventKind::Duplicate => add("duplicate_terminal_total", "", 1.0),
    }
}
