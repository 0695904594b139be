//! A live feed of events.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::event::{Event, Observer};

/// A live feed for any number of subscribers. A slow subscriber loses the oldest events and learns
/// how many; it never slows the locks down.
#[derive(Debug, Clone)]
pub struct Feed {
    sender: broadcast::Sender<Arc<Event>>,
}

impl Feed {
    /// A feed that buffers this many events for slow subscribers.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { sender: broadcast::Sender::new(capacity.max(1)) }
    }

    /// Subscribes to the events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.sender.subscribe()
    }
}

impl Observer for Feed {
    fn on_event(&self, event: &Event) {
        // Cloning an event costs allocations; skip it while there is no subscriber.
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send(Arc::new(event.clone()));
        }
    }
}
