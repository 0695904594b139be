//! The gauge of local-only holds.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::event::{Event, EventKind};
use crate::types::Holder;

/// The holds that are local-only now, by holder and id.
#[derive(Debug, Default)]
pub struct LocalOnlyHolds {
    holds: Mutex<HashSet<(Holder, u64)>>,
}

impl LocalOnlyHolds {
    /// Returns the change of `local_only_holds` by an event.
    pub fn gauge_delta(&self, event: &Event) -> f64 {
        let hold = || (event.holder.clone(), event.hold);
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        match event.what {
            EventKind::FellBack { .. } if holds.insert(hold()) => 1.0,
            // `OverlapEnded` also ends unproven holds, which the gauge never counted: only known
            // ids count down.
            EventKind::Healed { .. } | EventKind::OverlapEnded { .. } if holds.remove(&hold()) => -1.0,
            _ => 0.0,
        }
    }
}
