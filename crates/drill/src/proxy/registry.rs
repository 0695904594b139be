//! The list of toxics in force. Every connection watches it, so a change also affects open
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::error::Error;
use super::toxic::Toxic;

/// A toxic in force.
#[derive(Debug)]
pub(super) struct InstalledToxic {
    /// Number of the addition. It is part of the toxic's random seed: two toxics draw
    /// independently, and a second run with the same seed draws the same.
    pub(super) serial: u64,
    pub(super) toxic: Toxic,
    /// Remaining uses over all connections; none is unlimited.
    uses_left: Option<AtomicU64>,
}

impl InstalledToxic {
    pub(super) fn new(serial: u64, toxic: Toxic) -> Self {
        let left = toxic.kind.max_uses().map(AtomicU64::new);
        Self { serial, toxic, uses_left: left }
    }

    /// Takes one of the remaining uses. False if none is left.
    pub(super) fn claim_use(&self) -> bool {
        let Some(left) = &self.uses_left else { return true };
        left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// An immutable snapshot of the list, in the order of addition.
pub(super) type ToxicList = Arc<[Arc<InstalledToxic>]>;

/// The current list.
#[derive(Debug)]
pub(super) struct ToxicRegistry {
    entries: watch::Sender<ToxicList>,
    next_serial: AtomicU64,
}

impl ToxicRegistry {
    pub(super) fn new() -> Self {
        Self { entries: watch::Sender::new(Arc::new([])), next_serial: AtomicU64::new(1) }
    }

    pub(super) fn watch(&self) -> watch::Receiver<ToxicList> {
        self.entries.subscribe()
    }

    pub(super) fn entries(&self) -> ToxicList {
        Arc::clone(&self.entries.borrow())
    }

    pub(super) fn add(&self, toxic: Toxic) -> Result<(), Error> {
        let mut taken = None;
        // The check for the name and the addition are one step: two `add` calls cannot both take a
        // name.
        self.entries.send_if_modified(|entries| {
            if entries.iter().any(|entry| entry.toxic.name == toxic.name) {
                taken = Some(toxic.name);
                return false;
            }
            let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
            let added = Arc::new(InstalledToxic::new(serial, toxic));
            *entries = entries.iter().cloned().chain([added]).collect();
            true
        });
        taken.map_or(Ok(()), |name| Err(Error::DuplicateToxic { name }))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        let found = self.entries.send_if_modified(|entries| {
            let before = entries.len();
            *entries = entries.iter().filter(|entry| entry.toxic.name != name).cloned().collect();
            entries.len() < before
        });
        let name = name.to_owned();
        if found { Ok(()) } else { Err(Error::UnknownToxic { name }) }
    }

    pub(super) fn clear(&self) {
        self.entries.send_replace(Arc::new([]));
    }
}
