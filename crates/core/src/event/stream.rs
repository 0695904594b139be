//! The source of the events: numbers them and hands them to the observers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Event, EventKind, Observer};
use crate::clock::SharedClock;
use crate::types::{Fence, Holder, Name};

/// The source of the event stream.
#[derive(Debug)]
pub struct EventStream {
    seq: AtomicU64,
    clock: SharedClock,
    holder: Holder,
    observers: Vec<Arc<dyn Observer>>,
}

impl EventStream {
    /// A stream for these observers.
    #[must_use]
    pub fn new(clock: SharedClock, holder: Holder, observers: Vec<Arc<dyn Observer>>) -> Self {
        Self { seq: AtomicU64::new(0), clock, holder, observers }
    }

    /// Sends an event to every observer.
    pub fn emit(&self, subject: &EventSubject<'_>, what: EventKind) {
        let event = Event {
            seq: self.seq.fetch_add(1, Ordering::Relaxed),
            at: self.clock.now(),
            wall: self.clock.wall(),
            name: subject.name.cloned(),
            class: Arc::clone(subject.class),
            holder: subject.holder.unwrap_or(&self.holder).clone(),
            fence: subject.fence,
            hold: subject.hold,
            what,
        };
        for observer in &self.observers {
            // A panic of one observer must not end the caller's task, nor hide the event from the
            // others.
            let observed = catch_unwind(AssertUnwindSafe(|| observer.on_event(&event)));
            if observed.is_err() {
                tracing::error!(?observer, event = event.what.label(), "a reader of events panicked");
            }
        }
    }
}

/// The lock and hold that an event is about.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EventSubject<'a> {
    /// The lock's name; `None` for policy events.
    pub name: Option<&'a Name>,
    /// The class concerned.
    pub class: &'a Arc<str>,
    /// The fence of the hold, if it has one.
    pub fence: Option<Fence>,
    /// Id of the hold or acquire; 0 for policy and operator events.
    pub hold: u64,
    /// The holder, if it is not the client's own.
    pub holder: Option<&'a Holder>,
}
