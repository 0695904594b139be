//! The toxics in force. One list for the proxy; every connection watches it, so a change meets those already open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::error::Error;
use super::toxic::Toxic;

/// A toxic that was put in force.
#[derive(Debug)]
pub(super) struct Entry {
    /// Counts additions. Part of what is drawn, so that two toxics are drawn apart, and the same way in a second run.
    pub(super) serial: u64,
    pub(super) toxic: Toxic,
    /// How often it may still strike, over all connections.
    left: Option<AtomicU64>,
}

impl Entry {
    pub(super) fn new(serial: u64, toxic: Toxic) -> Self {
        let left = toxic.kind.times().map(AtomicU64::new);
        Self { serial, toxic, left }
    }

    /// Takes one of its strikes, if there is one left.
    pub(super) fn claim(&self) -> bool {
        let Some(left) = &self.left else { return true };
        left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

/// The list at one moment, in the order of addition.
pub(super) type Entries = Arc<[Arc<Entry>]>;

/// The list that changes.
#[derive(Debug)]
pub(super) struct Catalog {
    entries: watch::Sender<Entries>,
    serials: AtomicU64,
}

impl Catalog {
    pub(super) fn new() -> Self {
        Self {
            entries: watch::Sender::new(Arc::new([])),
            serials: AtomicU64::new(1),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<Entries> {
        self.entries.subscribe()
    }

    pub(super) fn entries(&self) -> Entries {
        Arc::clone(&self.entries.borrow())
    }

    pub(super) fn add(&self, toxic: Toxic) -> Result<(), Error> {
        let mut taken = None;
        self.entries.send_if_modified(|entries| {
            if entries.iter().any(|entry| entry.toxic.name == toxic.name) {
                taken = Some(toxic.name);
                return false;
            }
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let added = Arc::new(Entry::new(serial, toxic));
            *entries = entries.iter().cloned().chain([added]).collect();
            true
        });
        taken.map_or(Ok(()), |name| Err(Error::Taken { name }))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        let found = self.entries.send_if_modified(|entries| {
            let before = entries.len();
            *entries = entries
                .iter()
                .filter(|entry| entry.toxic.name != name)
                .cloned()
                .collect();
            entries.len() < before
        });
        let name = name.to_owned();
        if found {
            Ok(())
        } else {
            Err(Error::Unknown { name })
        }
    }

    pub(super) fn clear(&self) {
        self.entries.send_replace(Arc::new([]));
    }
}
