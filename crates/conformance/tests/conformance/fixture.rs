//! The memory store as a fixture, plain or behind something else.

use std::sync::Arc;

use leasehold_conformance::Fixture;
use leasehold_core::Name;
use leasehold_core::clock::{RuntimeClock, SharedClock};
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::SharedStore;

/// Puts something before a store.
type Wrap = Box<dyn Fn(SharedStore, SharedClock) -> SharedStore + Send + Sync>;

/// A fresh memory store on the runtime's clock.
pub(crate) struct Memory {
    store: MemoryStore,
    clock: SharedClock,
    wrap: Wrap,
    longest_name: usize,
}

impl Memory {
    /// As it is.
    pub(crate) fn fresh() -> Self {
        Self::behind(|store, _| store)
    }

    /// Every handle behind what `wrap` makes of it.
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

    /// With this much less room for names.
    pub(crate) fn shorter_names(mut self, by: usize) -> Self {
        self.longest_name -= by;
        self
    }

    /// The store without what stands before it.
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

    fn longest_name(&self) -> usize {
        self.longest_name
    }
}
