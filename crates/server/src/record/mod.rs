//! What happens, told once: one stream that the feed, the metrics and the history read.
//!
//! The daemon's own client tells of the holds it keeps ([`Recorder`] is its observer); for leases that clients keep
//! themselves, [`Kept`] makes the same events out of the questions that pass through here.

mod event;
mod feed;
mod history;
mod kept;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::clock::SharedClock;
use leasehold::event::{Event, Observer, What};
use leasehold::{Fence, Holder, Name};

pub(crate) use event::EventView;
pub(crate) use feed::Feed;
pub(crate) use history::{Ended, History, HistoryRow, Wanted, stamp};
pub(crate) use kept::Kept;

use crate::numbers::Numbers;

/// Passes every event on to all who read.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) feed: Feed,
    pub(crate) metrics: Numbers,
    pub(crate) history: History,
    clock: SharedClock,
    seq: AtomicU64,
    /// Numbers of holds that clients keep: apart from those of the daemon's own.
    ids: AtomicU64,
}

/// The first number of a hold that a client keeps.
const CLIENTS: u64 = 1 << 40;

impl Recorder {
    pub(crate) fn new(clock: SharedClock, store: &'static str, feed: Feed, history: History) -> Arc<Self> {
        Arc::new(Self {
            feed,
            metrics: Numbers::new(store),
            history,
            clock,
            seq: AtomicU64::new(0),
            ids: AtomicU64::new(CLIENTS),
        })
    }

    /// The next hold that a client keeps.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells of something that a client's question did.
    pub(crate) fn tell(&self, about: &About<'_>, what: What) {
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
        self.on(&event);
    }
}

impl Observer for Recorder {
    fn on(&self, event: &Event) {
        Observer::on(&self.metrics, event);
        self.history.on(event);
        self.feed.on(event);
    }
}

/// What the control plane has to tell is counted too.
impl leasehold_plane::note::Observer for Recorder {
    fn on(&self, note: &leasehold_plane::note::Note) {
        leasehold_plane::note::Observer::on(&self.metrics, note);
    }
}

/// What an event of a client's lease is about.
#[derive(Debug)]
pub(crate) struct About<'a> {
    pub(crate) name: &'a Name,
    pub(crate) class: &'a str,
    pub(crate) holder: &'a Holder,
    pub(crate) fence: Option<Fence>,
    pub(crate) hold: u64,
}
