//! The store: the verbs of the contract, each in its own file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::Clock;
use leasehold_core::store::{
    Answer, Ask, Capabilities, Failure, Given, Giving, Lease, Listener, Listing, Promise, Promised, Renewal,
    Renewed, Store,
};
use leasehold_core::word::{Name, Token};

use crate::connection::{Dialer, Line};
use crate::keys::KeyMap;
use crate::options::RedisOptions;
use crate::wake::Ear;
use crate::{acquire, inspect, promise, release, renew};

/// Leases on one Redis or Valkey server.
///
/// Up to three connections, each made when first needed: one for asking and looking, one for renewing and giving
/// back (so a flood of asks never makes a holder lose its lock), one for being woken.
pub struct RedisStore {
    shared: Shared,
}

/// What all verbs work with.
pub(crate) struct Shared {
    dialer: Arc<Dialer>,
    /// For acquire, inspect, list and promise.
    pub(crate) asking: Line,
    /// For renew and release only.
    pub(crate) keeping: Line,
    pub(crate) ear: Ear,
}

impl Shared {
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.dialer.options.clock.as_ref()
    }

    pub(crate) fn keys(&self) -> &KeyMap {
        &self.dialer.options.keys
    }

    pub(crate) fn wait_replicas(&self) -> u32 {
        self.dialer.options.wait_replicas
    }
}

impl RedisStore {
    /// Makes the store. Connects to nothing yet: a server that is down shows when it is asked.
    ///
    /// # Errors
    /// A file that the options name cannot be used.
    pub fn open(options: RedisOptions) -> Result<Self, Failure> {
        options.password()?;
        options.authorities()?;
        let dialer = Arc::new(Dialer { options });
        Ok(Self {
            shared: Shared {
                asking: Line::new(&dialer, "ask"),
                keeping: Line::new(&dialer, "keep"),
                ear: Ear::new(&dialer),
                dialer,
            },
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", &self.shared.dialer.options)
            .field("asking", &self.shared.asking)
            .field("keeping", &self.shared.keeping)
            .field("ear", &self.shared.ear)
            .finish()
    }
}

#[async_trait]
impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("redis", Promise::Durable)
            .with_list()
            .with_queue()
            .with_cross_process()
            .with_fence_survives_loss()
    }

    fn describe(&self) -> String {
        self.shared.dialer.options.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        acquire::acquire(&self.shared, ask, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        renew::renew(&self.shared, batch, within).await
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        release::release(&self.shared, giving, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        inspect::inspect(&self.shared, name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        inspect::list(&self.shared, prefix, limit, within).await
    }

    fn listen(&self, _name: &Name, token: &Token) -> Listener {
        self.shared.ear.listen(token)
    }

    async fn promise(&self, within: Duration) -> Result<Promised, Failure> {
        promise::promise(&self.shared, within).await
    }
}
