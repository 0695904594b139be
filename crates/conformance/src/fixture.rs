//! What a store's author writes: how to get at a fresh store.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{BootClock, ClockExt, SharedClock};
use leasehold_core::store::SharedStore;
use leasehold_core::{Name, Ttl};

use crate::taker::TakerCommand;

/// One fresh, empty set of leases that nobody else uses. Each case gets a fixture of its own and drops it at
/// the end; what the fixture started (a server, a folder) ends with it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// A handle on this fixture's leases. Every call gives another handle (its own connection, if the store has
    /// such) on the *same* leases.
    async fn open(&self) -> anyhow::Result<SharedStore>;

    /// Like [`open`](Self::open), after everything has been closed: a store with files or a server closes and
    /// starts it again, so that what it forgets shows. The case has dropped its own handles before.
    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        self.open().await
    }

    /// The clock on which the store's leases run out at the same pace: real by default. A store on injected time
    /// gives its own, and then its cases take no time.
    fn clock(&self) -> SharedClock {
        BootClock::shared()
    }

    /// Lets time pass.
    async fn pass(&self, time: Duration) {
        self.clock().sleep(time).await;
    }

    /// The time to live of leases that are to run out in a case. A store that cannot keep to one so short
    /// answers with its own in [`Grant::ttl`](leasehold_core::store::Grant::ttl), which the cases heed.
    fn brief(&self) -> Ttl {
        // The bounds are constants of `Ttl`, and this lies between them.
        Ttl::new(Duration::from_millis(300)).unwrap_or(Ttl::MIN)
    }

    /// The longest name the store takes, in bytes: every name there is, unless something stands before the store
    /// and needs a part of it.
    fn longest_name(&self) -> usize {
        Name::MAX
    }

    /// How to start a process that takes leases of this fixture: see [`taker!`](crate::taker). Needed if the
    /// store says that processes can share it.
    fn taker(&self) -> Option<TakerCommand> {
        None
    }
}
