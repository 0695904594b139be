use std::sync::Arc;

use tokio::sync::broadcast;

use crate::event::{Event, Observer};

/// A live feed that any number of readers subscribe to. A reader that falls behind loses the oldest events and is told
/// how many; it never slows the locks down.
#[derive(Debug, Clone)]
pub struct Feed {
    sender: broadcast::Sender<Arc<Event>>,
}

impl Feed {
    /// A feed that keeps this many events for slow readers.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            sender: broadcast::Sender::new(capacity.max(1)),
        }
    }

    /// The events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.sender.subscribe()
    }
}

impl Observer for Feed {
    fn on(&self, event: &Event) {
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send(Arc::new(event.clone()));
        }
    }
}
