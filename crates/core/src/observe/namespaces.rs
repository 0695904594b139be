use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::event::Event;

/// At most this many are told apart, so that names without an order cannot make memory grow.
const NAMESPACES: usize = 100;

/// The namespaces that numbers are kept apart for. Those that come after the bound are one: `other`.
#[derive(Debug, Default)]
pub struct Namespaces {
    known: Mutex<HashSet<String>>,
}

impl Namespaces {
    /// The label's value for this event.
    #[must_use]
    pub fn of(&self, event: &Event) -> String {
        let namespace = event.namespace();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(namespace) {
            if known.len() >= NAMESPACES {
                return "other".to_owned();
            }
            known.insert(namespace.to_owned());
        }
        namespace.to_owned()
    }
}
