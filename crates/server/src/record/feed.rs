//! The last events in bounded memory, and a bell for those who follow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::Name;
use leasehold::event::Event;
use tokio::sync::watch;

use super::EventView;

/// One event, ready to be sent.
#[derive(Debug)]
pub(crate) struct Entry {
    seq: u64,
    /// Of which lock; none for policy events, which everybody may see.
    pub(crate) name: Option<Name>,
    pub(crate) label: &'static str,
    /// As JSON: made once, however many follow.
    pub(crate) json: String,
    pub(crate) id: String,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Which life of the daemon: ids of another one cannot be resumed.
    epoch: String,
    limit: usize,
    ring: Mutex<VecDeque<Arc<Entry>>>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

/// Events that are not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missed;

impl Feed {
    pub(crate) fn new(epoch: u64, limit: usize) -> Self {
        Self {
            epoch: format!("{epoch:016x}"),
            limit: limit.max(1),
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    pub(crate) fn on(&self, event: &Event) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = *self.newest.borrow() + 1;
        let id = self.id(seq);
        let view = EventView::of(event, id.clone());
        if ring.len() == self.limit {
            ring.pop_front();
        }
        ring.push_back(Arc::new(Entry {
            seq,
            name: event.name.clone(),
            label: event.what.label(),
            json: serde_json::to_string(&view).unwrap_or_default(),
            id,
        }));
        // Under the lock, so that numbers grow in the order of the ring.
        self.newest.send_replace(seq);
    }

    /// Rings when there is something new.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    fn id(&self, seq: u64) -> String {
        format!("{}-{seq}", self.epoch)
    }

    /// The number behind an id.
    ///
    /// # Errors
    /// It is of another life of the daemon, or of none.
    pub(crate) fn seq(&self, id: &str) -> Result<u64, Missed> {
        let (epoch, seq) = id.split_once('-').ok_or(Missed)?;
        let seq = seq.parse().map_err(|_| Missed)?;
        if epoch == self.epoch && seq <= self.newest() {
            Ok(seq)
        } else {
            Err(Missed)
        }
    }

    /// Up to `most` events behind this number, and whether some before them are gone.
    pub(crate) fn after(&self, seq: u64, most: usize) -> (Vec<Arc<Entry>>, Option<Missed>) {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(oldest) = ring.front().map(|entry| entry.seq) else {
            return (Vec::new(), None);
        };
        let missed = (seq + 1 < oldest).then_some(Missed);
        let skip = usize::try_from((seq + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let found = ring.iter().skip(skip).take(most).cloned().collect();
        (found, missed)
    }
}

impl Entry {
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }
}
