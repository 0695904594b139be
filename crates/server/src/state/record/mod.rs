//! One stream of events that feeds the event stream, the metrics and the history.
//!
//! [`Recorder`] observes the daemon's own lock client, which reports the holds it keeps. For leases
//! that clients keep themselves, [`ClientLeases`] makes the same events from the requests that pass
//! through the daemon.

mod client_leases;
mod event;
mod feed;
mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::clock::SharedClock;
use leasehold::event::{Event, EventKind, Observer};
use leasehold::{Fence, Holder, Name};

pub(crate) use client_leases::ClientLeases;
pub(crate) use event::{EventView, without_reason};
pub(crate) use feed::Feed;
pub(crate) use history::{History, HistoryFilter, HoldEnd, format_micros};

use crate::api::plane::DocumentWatchers;
use crate::state::metrics_registry::MetricsRegistry;

/// Distributes every event to feed, metrics and history.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) feed: Feed,
    pub(crate) metrics_registry: MetricsRegistry,
    pub(crate) history: History,
    /// The documents of the control plane that clients wait for.
    pub(crate) watchers: DocumentWatchers,
    clock: SharedClock,
    seq: AtomicU64,
    /// Ids of client-kept leases, from a range apart from the ids of the daemon's own holds.
    next_client_hold: AtomicU64,
}

// The daemon's own lock client counts its holds from one and never gets this far.
const FIRST_CLIENT_HOLD_ID: u64 = 1 << 40;

impl Recorder {
    pub(crate) fn new(clock: SharedClock, store: &'static str, feed: Feed, history: History) -> Arc<Self> {
        Arc::new(Self {
            feed,
            metrics_registry: MetricsRegistry::new(store),
            history,
            watchers: DocumentWatchers::default(),
            clock,
            seq: AtomicU64::new(0),
            next_client_hold: AtomicU64::new(FIRST_CLIENT_HOLD_ID),
        })
    }

    /// A new id for a client-kept lease.
    pub(crate) fn next_client_hold_id(&self) -> u64 {
        self.next_client_hold.fetch_add(1, Ordering::Relaxed)
    }

    /// Records an event that a client's request caused.
    pub(crate) fn record(&self, about: &EventSubject<'_>, what: EventKind) {
        let event = Event {
            seq: self.seq.fetch_add(1, Ordering::Relaxed),
            at: self.clock.now(),
            wall: self.clock.wall(),
            name: Some(about.name.clone()),
            class: about.class.into(),
            holder: about.holder.clone(),
            fence: about.fence,
            hold: about.hold,
            what,
        };
        self.on_event(&event);
    }
}

impl Observer for Recorder {
    fn on_event(&self, event: &Event) {
        self.metrics_registry.on_event(event);
        self.history.on(event);
        self.feed.on(event);
    }
}

/// Counts the control plane's events too, and wakes the clients that wait for a job.
impl leasehold_plane::events::PlaneObserver for Recorder {
    fn on_plane_event(&self, event: &leasehold_plane::events::PlaneEvent) {
        self.metrics_registry.on_plane_event(event);
        if let leasehold_plane::events::PlaneEvent::StateChanged { job, .. } = event {
            self.watchers.job_changed(job);
        }
    }
}

/// The lease that an event is about.
#[derive(Debug)]
pub(crate) struct EventSubject<'a> {
    pub(crate) name: &'a Name,
    pub(crate) class: &'a str,
    pub(crate) holder: &'a Holder,
    pub(crate) fence: Option<Fence>,
    pub(crate) hold: u64,
}
