//! The trait that a store's author implements: how to open a fresh store.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, ClockExt, SharedClock};
use leasehold_core::store::SharedStore;
use leasehold_core::{Name, Ttl};

use crate::taker::TakerCommand;

/// A fresh, empty set of leases that no other test uses. Each case gets its own fixture and drops
/// it at the end. What the fixture started (a server, a folder) ends with it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Opens a handle on this fixture's leases. Every call returns another handle (with its own
    /// connection, if the store has one) on the *same* leases.
    async fn open(&self) -> anyhow::Result<SharedStore>;

    /// Like [`open`](Self::open), after everything was closed. A store with files or a
    /// server closes and starts it again, so that lost state shows. The case has
    /// dropped its own handles before.
    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        self.open().await
    }

    /// The clock by which the store's leases expire; the boot clock by default. A store on injected
    /// time returns its own, and then its cases take no time.
    fn clock(&self) -> SharedClock {
        BootClock::shared()
    }

    /// Waits until this much time has passed on the fixture's clock.
    async fn wait(&self, time: Duration) {
        self.clock().sleep(time).await;
    }

    /// TTL of leases that expire during a case, at least the store's
    /// [`min_ttl`](leasehold_core::store::Capabilities::min_ttl). A store that rounds it up tells so in
    /// [`Grant::ttl`](leasehold_core::store::Grant::ttl), and the cases use that.
    fn short_ttl(&self) -> Ttl {
        // Always valid: 300 ms is between the bounds of `Ttl`.
        Ttl::new(Duration::from_millis(300)).unwrap_or(Ttl::MIN)
    }

    /// Limit of a name's length in bytes. Less than `Name::MAX` if an adapter in front of
    /// the store uses a part of it.
    fn max_name_bytes(&self) -> usize {
        Name::MAX
    }

    /// How to start a process that acquires leases of this fixture: see [`taker!`](crate::taker).
    /// Required if the store's capabilities say that processes can share it.
    fn taker(&self) -> Option<TakerCommand> {
        None
    }
}
