use std::time::Duration;

use crate::event::{Op, What};

/// Which numbers an event moves, and by how much: name, value of its own label, amount. What a number is, and what its own label
/// is called, is in [`METRICS`](super::METRICS).
pub fn moves(what: &What, mut add: impl FnMut(&'static str, &'static str, f64)) {
    let secs = |duration: &Duration| duration.as_secs_f64();
    match what {
        What::Acquired {
            took,
            takeover,
            behind_debt,
            ..
        } => {
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
        What::Busy { took, .. } => {
            add("acquire_total", "busy", 1.0);
            add("acquire_seconds", "", secs(took));
        }
        What::Unavailable { took, .. } => {
            add("acquire_total", "unavailable", 1.0);
            add("acquire_seconds", "", secs(took));
        }
        What::Cancelled { took } => {
            add("acquire_total", "cancelled", 1.0);
            add("acquire_seconds", "", secs(took));
        }
        What::FellBack { took, .. } => {
            add("acquire_total", "fell_back", 1.0);
            add("acquire_seconds", "", secs(took));
            add("fallback_total", "", 1.0);
        }
        What::Resumed { .. } => add("resumed_total", "", 1.0),
        What::Healed { .. } => add("healed_total", "", 1.0),
        What::TooLate => add("too_late_total", "", 1.0),
        What::Renewed { took, .. } => {
            add("renew_total", "renewed", 1.0);
            add("renew_seconds", "", secs(took));
        }
        What::RenewFailed { unknown, .. } => {
            add("renew_total", if *unknown { "unknown" } else { "failed" }, 1.0)
        }
        What::ClockJump { .. } => add("clock_jump_total", "", 1.0),
        What::NotOwned { op } => match op {
            Op::Renew => {
                add("renew_total", "not_owned", 1.0);
                add("not_owned_total", "renew", 1.0);
            }
            Op::Release => add("not_owned_total", "release", 1.0),
        },
        What::Abandoned { reason, held } => {
            add("abandoned_total", reason.label(), 1.0);
            add("held_seconds", "", secs(held));
        }
        What::WouldStop { reason } => add("would_stop_total", reason.label(), 1.0),
        What::WouldRefuse { .. } => add("would_refuse_total", "", 1.0),
        What::Unproven => add("unproven_total", "", 1.0),
        What::ProvenAgain { overlap, .. } | What::OverlapEnded { overlap } => {
            add("overlap_seconds_total", "", secs(overlap));
        }
        What::OverlapConfirmed => add("overlap_confirmed_total", "", 1.0),
        What::Released { held, attempts } => {
            add("release_total", "released", 1.0);
            add("release_attempts", "", f64::from(*attempts));
            add("held_seconds", "", secs(held));
        }
        What::Kept { held } => {
            add("release_total", "kept", 1.0);
            add("held_seconds", "", secs(held));
        }
        What::AlreadyLost { held } => {
            add("release_total", "already_lost", 1.0);
            add("held_seconds", "", secs(held));
        }
        What::ReleaseFailed { .. } => add("release_failed_total", "", 1.0),
        What::Debt { held, .. } => {
            add("release_total", "debt", 1.0);
            add("debt_holds", "", 1.0);
            add("held_seconds", "", secs(held));
        }
        What::DebtCleared { after, .. } => {
            add("debt_holds", "", -1.0);
            add("debt_seconds_total", "", secs(after));
        }
        What::Undone { .. } => add("undone_total", "", 1.0),
        What::Broken { .. } => add("broken_total", "", 1.0),
        What::PolicyChanged { .. } => add("policy_changed_total", "", 1.0),
        What::PolicyRefused { .. } => add("policy_refused_total", "", 1.0),
        What::FenceRefused { .. } => add("fence_refused_total", "", 1.0),
        What::Duplicate => add("duplicate_terminal_total", "", 1.0),
    }
}
