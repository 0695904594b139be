//! The memory store as a fixture, plain or behind an adapter.

use std::sync::Arc;

use leasehold_conformance::Fixture;
use leasehold_core::Name;
use leasehold_core::clock::{RuntimeClock, SharedClock};
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::SharedStore;

/// Wraps a store in an adapter.
type Wrap = Box<dyn Fn(SharedStore, SharedClock) -> SharedStore + Send + Sync>;

/// A fresh memory store on the runtime's clock.
pub(crate) struct Memory {
    store: MemoryStore,
    clock: SharedClock,
    wrap: Wrap,
    longest_name: usize,
}

impl Memory {
    /// Creates a fixture without an adapter.
    pub(crate) fn fresh() -> Self {
        Self::behind(|store, _| store)
    }

    /// Wraps every handle with `wrap`.
    pub(crate) fn behind(
        wrap: impl Fn(SharedStore, SharedClock) -> SharedStore + Send + Sync + 'static,
    ) -> Self {
        let clock = RuntimeClock::shared();
        Self {
            store: MemoryStore::new(Arc::clone(&clock)),
            clock,
            wrap: Box::new(wrap),
            longest_name: Name::MAX,
        }
    }

    /// Reduces the length limit of names by this much.
    pub(crate) fn shorter_names(mut self, by: usize) -> Self {
        self.longest_name -= by;
        self
    }

    /// The memory store itself, whose handles share its leases.
    pub(crate) fn memory_store(&self) -> &MemoryStore {
        &self.store
    }

    /// The store without its adapter.
    pub(crate) fn plain(&self) -> SharedStore {
        Arc::new(self.store.clone())
    }
}

#[async_trait::async_trait]
impl Fixture for Memory {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        Ok((self.wrap)(Arc::new(self.store.clone()), Arc::clone(&self.clock)))
    }

    fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock)
    }

    fn max_name_bytes(&self) -> usize {
        self.longest_name
    }
}
