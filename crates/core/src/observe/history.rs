//! The last events in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::event::{Event, Observer};

/// The last events, in order, in bounded memory.
#[derive(Debug)]
pub struct History {
    limit: usize,
    events: Mutex<VecDeque<Event>>,
}

impl History {
    /// A history of at most `limit` events; the oldest are dropped.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), events: Mutex::default() }
    }

    /// A copy of the kept events, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The number of kept events with this label.
    #[must_use]
    pub fn count(&self, label: &str) -> usize {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().filter(|event| event.what.label() == label).count()
    }
}

impl Observer for History {
    fn on_event(&self, event: &Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == self.limit {
            events.pop_front();
        }
        events.push_back(event.clone());
    }
}
