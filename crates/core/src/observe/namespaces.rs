//! The bound on namespace labels.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::event::Event;

// Bounds memory and metric cardinality when names have no common namespaces.
const MAX_NAMESPACES: usize = 100;

/// The namespaces with metrics of their own. Later ones share the label `other`.
#[derive(Debug, Default)]
pub struct Namespaces {
    known: Mutex<HashSet<String>>,
}

impl Namespaces {
    /// The label value for this event.
    #[must_use]
    pub fn label_for(&self, event: &Event) -> String {
        let namespace = event.namespace();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(namespace) {
            if known.len() >= MAX_NAMESPACES {
                return "other".to_owned();
            }
            known.insert(namespace.to_owned());
        }
        namespace.to_owned()
    }
}
