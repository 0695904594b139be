use crate::store::Promise;

/// How a store behaves, as data for the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimProfile {
    /// The store's kind, as in its capabilities.
    pub name: &'static str,
    /// `Volatile`: flushes and fail-overs lose acknowledged writes.
    pub promise: Promise,
    /// What leases are timed by.
    pub expiry_clock: ExpiryClock,
    /// What keeps fences growing.
    pub fence_source: FenceSource,
    /// When its memory is full, it refuses a release that ends no lease and only leaves a tombstone.
    pub refuses_tombstones_when_full: bool,
    /// Its share of the simulator's seeds, relative to other stores. 0: never drawn.
    pub seed_share: u64,
}

/// The clock that ends leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryClock {
    /// The wall clock of the store's server, which can be stepped.
    ServerWall,
    /// The boot clock of the host that the store and its clients share. A reboot voids all leases.
    HostBoot,
}

/// Where fences come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceSource {
    /// A counter that survives everything, with the wall clock as its floor.
    DurableCounter,
    /// A counter that can be lost. The server's wall clock is its floor, read on the first use of a
    /// connection, when the counter is gone, and at every hand-over.
    ServerClock,
}

impl SimProfile {
    /// A store that loses nothing, on the host of its clients, and that the simulator never draws.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            promise: Promise::Durable,
            expiry_clock: ExpiryClock::HostBoot,
            fence_source: FenceSource::DurableCounter,
            refuses_tombstones_when_full: false,
            seed_share: 0,
        }
    }

    /// A server that can lose acknowledged writes and times leases by its wall clock.
    #[must_use]
    pub const fn volatile_server(name: &'static str) -> Self {
        Self {
            promise: Promise::Volatile,
            expiry_clock: ExpiryClock::ServerWall,
            fence_source: FenceSource::ServerClock,
            refuses_tombstones_when_full: true,
            ..Self::new(name)
        }
    }

    /// Sets its share of the simulator's seeds. A change changes what seeds mean.
    #[must_use]
    pub const fn with_seed_share(mut self, share: u64) -> Self {
        self.seed_share = share;
        self
    }
}
