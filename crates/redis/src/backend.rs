//! The `Store` implementation, with a module per operation, and the `Backend` that opens it by URL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::Clock;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Backend, BackendInfo, Capabilities, Documents, Examination, LeaseList,
    Promise, PromiseReport, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, SharedStore, Store,
    StoreError, StoreLocation, WakeListener, redact,
};
use leasehold_core::testbed::SimProfile;
use leasehold_core::types::{Name, Token};

use crate::connection::{ConnectionSlot, Connector};
use crate::examine::examine;
use crate::keys::KeyMap;
use crate::options::RedisOptions;
use crate::wake::WakeSubscription;
use crate::{acquire, inspect, promise, release, renew};

pub(crate) const CAPABILITIES: Capabilities = Capabilities::new("redis", Promise::Durable)
    .with_list()
    .with_queue()
    .with_cross_process()
    .with_fence_survives_loss()
    .with_documents(true);

/// Leases on one Redis or Valkey server.
///
/// Opens up to three connections, each on first use: one for acquires and reads, one for
/// renewals and releases, one for wake-ups. The second exists so that a flood of acquires cannot
/// make a holder lose its lock.
pub struct RedisStore {
    context: Context,
}

/// Shared by all operations.
pub(crate) struct Context {
    connector: Arc<Connector>,
    // A separate connection per kind of request: a blocked one must not delay renewals.
    /// For acquire, inspect, list, promise and documents.
    pub(crate) request_slot: ConnectionSlot,
    /// For renew and release only.
    pub(crate) renewal_slot: ConnectionSlot,
    pub(crate) wake_subscription: WakeSubscription,
}

impl Context {
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.connector.options.clock.as_ref()
    }

    pub(crate) fn keys(&self) -> &KeyMap {
        &self.connector.options.keys
    }

    pub(crate) fn wait_replicas(&self) -> u32 {
        self.connector.options.wait_replicas
    }
}

impl RedisStore {
    /// Creates the store without connecting. A server that is down is reported
    /// by the first request.
    ///
    /// # Errors
    /// A file that the options name cannot be read, or is readable by everyone.
    pub fn open(options: RedisOptions) -> Result<Self, StoreError> {
        // Read both files now, so that a bad one is reported at start and not by the first request.
        options.password()?;
        options.ca_certificates()?;
        let connector = Arc::new(Connector { options });
        Ok(Self {
            context: Context {
                request_slot: ConnectionSlot::new(&connector, "ask"),
                renewal_slot: ConnectionSlot::new(&connector, "keep"),
                wake_subscription: WakeSubscription::new(&connector),
                connector,
            },
        })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", &self.context.connector.options)
            .field("asking", &self.context.request_slot)
            .field("keeping", &self.context.renewal_slot)
            .field("ear", &self.context.wake_subscription)
            .finish()
    }
}

#[async_trait]
impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn describe(&self) -> String {
        self.context.connector.options.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        acquire::acquire(&self.context, request, within).await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        renew::renew(&self.context, batch, within).await
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        release::release(&self.context, request, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        inspect::inspect(&self.context, name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        inspect::list(&self.context, prefix, limit, within).await
    }

    fn listen(&self, _name: &Name, token: &Token) -> WakeListener {
        self.context.wake_subscription.listen(token)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }

    async fn promise(&self, within: Duration) -> Result<PromiseReport, StoreError> {
        promise::promise(&self.context, within).await
    }
}

/// Opens `redis://` and `rediss://`; `valkey://` and `valkeys://` mean the same.
#[derive(Debug, Clone, Copy)]
pub struct RedisBackend;

impl Backend for RedisBackend {
    fn info(&self) -> BackendInfo {
        BackendInfo::new(
            "Redis",
            &["redis", "rediss", "valkey", "valkeys"],
            &["redis://HOST", "rediss://HOST"],
        )
        .with_summary("Redis or Valkey", "all hosts that reach it")
        .with_examines(
            "eviction, persistence, replicas and fail-over, the server's clock, the user's rights, version, \
                       memory, clients",
        )
        .with_rights_advice(
            "give the user the rights of the ACL line in docs/stores/redis.md; waiters must be allowed to \
             subscribe, and only listing needs +scan",
        )
        .with_capabilities(CAPABILITIES)
    }

    fn parse(&self, url: &str) -> Result<Box<dyn StoreLocation>, StoreError> {
        let options = RedisOptions::parse(url)?;
        Ok(Box::new(RedisLocation { url: url.to_owned(), options }))
    }

    #[cfg(feature = "testbed")]
    fn testbed(&self) -> Option<&'static dyn leasehold_core::testbed::TestbedFactory> {
        Some(&crate::testkit::RedisTestbeds)
    }

    fn sim_profile(&self) -> Option<SimProfile> {
        Some(SimProfile::volatile_server("redis").with_seed_share(600))
    }
}

struct RedisLocation {
    url: String,
    options: RedisOptions,
}

impl fmt::Display for RedisLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `RedisOptions` refuses passwords, but a value of the query may look like one.
        f.write_str(&redact(&self.url))
    }
}

#[async_trait]
impl StoreLocation for RedisLocation {
    fn expose_url(&self) -> String {
        self.url.clone()
    }

    fn open(&self) -> Result<SharedStore, StoreError> {
        Ok(Arc::new(RedisStore::open(self.options.clone())?))
    }

    async fn examine(&self, within: Duration) -> Result<Examination, StoreError> {
        examine(&self.options, within).await
    }
}
