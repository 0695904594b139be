use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::event::{Event, Observer, Op, What};
use crate::word::Holder;

/// A number that moves with the stream. Names are without the `leasehold_` prefix; times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// E.g. `acquire_total`.
    pub name: &'static str,
    /// The value of its own label (`outcome`, `reason`, `op`), or empty.
    pub label: &'static str,
}

/// Whose number it is. Never the lock's name: that would be without bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// The class.
    pub class: Arc<str>,
    /// The namespace: what stands before the first `:` of the name.
    pub namespace: String,
}

/// At most this many namespaces are told apart; the rest is counted as `other`, so that names without an order cannot
/// make memory grow.
const NAMESPACES: usize = 100;

/// Totals in memory: what the daemon exports and what tests compare with the stream. Every event moves each of its
/// numbers exactly once.
#[derive(Debug, Default)]
pub struct Counters {
    values: Mutex<BTreeMap<(Metric, Labels), f64>>,
    /// Holds that are local-only now, by whose and which: only they leave that gauge again.
    local: Mutex<HashSet<(Holder, u64)>>,
}

impl Counters {
    /// The sum over all classes and namespaces.
    #[must_use]
    pub fn total(&self, name: &str, label: &str) -> f64 {
        self.sum(|metric, _| metric.name == name && metric.label == label)
    }

    /// The sum over all namespaces of one class.
    #[must_use]
    pub fn of_class(&self, name: &str, label: &str, class: &str) -> f64 {
        self.sum(|metric, labels| metric.name == name && metric.label == label && &*labels.class == class)
    }

    /// Everything, in order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(Metric, Labels, f64)> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values
            .iter()
            .map(|((metric, labels), value)| (*metric, labels.clone(), *value))
            .collect()
    }

    /// How an event moves the number of local-only holds.
    fn local_only(&self, event: &Event) -> f64 {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let hold = || (event.holder.clone(), event.hold);
        match event.what {
            What::FellBack { .. } if local.insert(hold()) => 1.0,
            // Healed, or its work has ended while it was not.
            What::Healed { .. } | What::OverlapEnded { .. } if local.remove(&hold()) => -1.0,
            _ => 0.0,
        }
    }

    fn sum(&self, of: impl Fn(&Metric, &Labels) -> bool) -> f64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values
            .iter()
            .filter(|((metric, labels), _)| of(metric, labels))
            // Not `sum`: of nothing, that is minus zero.
            .fold(0.0, |sum, (_, value)| sum + value)
    }
}

impl Observer for Counters {
    fn on(&self, event: &Event) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let mut namespace = event.namespace().to_owned();
        let known = values.keys().any(|(_, labels)| labels.namespace == namespace);
        if !known
            && values
                .keys()
                .map(|(_, labels)| &labels.namespace)
                .collect::<std::collections::BTreeSet<_>>()
                .len()
                >= NAMESPACES
        {
            "other".clone_into(&mut namespace);
        }
        let labels = Labels {
            class: Arc::clone(&event.class),
            namespace,
        };
        let key = |name, label| (Metric { name, label }, labels.clone());
        moves(&event.what, |name, label, by| {
            *values.entry(key(name, label)).or_default() += by
        });
        let by = self.local_only(event);
        if by != 0.0 {
            *values.entry(key("local_only_holds", "")).or_default() += by;
        }
        if let What::Renewed { left, .. } = event.what {
            // The least so far: the early warning is the worst renewal, not the average.
            let least = values.entry(key("renew_remaining_ratio", "")).or_insert(left);
            *least = least.min(left);
        }
    }
}

/// Which numbers an event moves, and by how much.
fn moves(what: &What, mut add: impl FnMut(&'static str, &'static str, f64)) {
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
