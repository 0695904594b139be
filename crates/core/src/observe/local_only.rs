use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::event::{Event, What};
use crate::word::Holder;

/// Which holds are local-only now, by whose and which: only they leave the gauge again.
#[derive(Debug, Default)]
pub struct LocalOnly {
    holds: Mutex<HashSet<(Holder, u64)>>,
}

impl LocalOnly {
    /// How an event moves `local_only_holds`.
    pub fn moved(&self, event: &Event) -> f64 {
        let hold = || (event.holder.clone(), event.hold);
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        match event.what {
            What::FellBack { .. } if holds.insert(hold()) => 1.0,
            // Healed, or its work has ended while it was not.
            What::Healed { .. } | What::OverlapEnded { .. } if holds.remove(&hold()) => -1.0,
            _ => 0.0,
        }
    }
}
