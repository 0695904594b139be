//! The `Store` implementation: each operation is one request, in the file of its name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, Documents, LeaseList, Promise, PromiseReport,
    ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, Store, StoreError, WakeListener,
};
use leasehold_core::{Name, Token};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::connection::Connections;
use crate::environment::Environment;
use crate::options::HttpOptions;
use crate::wake::WakeSubscription;
use crate::{acquire, inspect, promise, release, renew};

/// The capabilities of the best store that the wire can express. What the daemon's store cannot do is
/// refused as *unsupported* when called. So a daemon that is down need not be asked first, and
/// fail-open classes work without it.
///
/// The times are the defaults. A daemon whose store has a longer shortest TTL refuses shorter ones
/// itself. A longer claim or expiry lag costs the waiter retries, never correctness.
pub(crate) const CAPABILITIES: Capabilities = Capabilities::new("http", Promise::Consensus)
    .with_list()
    .with_queue()
    .with_cross_process()
    .with_documents(false)
    .with_fence_survives_loss();

// Everything else is percent-encoded, so that no name can leave its path segment.
const SEGMENT_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b':');

/// A store behind a daemon.
///
/// No connection is opened before the first call. A daemon that is down shows then as
/// *unreachable*, and the class decides what follows.
pub struct HttpStore {
    pub(crate) connections: Arc<Connections>,
    wake_subscription: WakeSubscription,
}

impl HttpStore {
    /// Reads the files that the options name. No connection is opened yet.
    ///
    /// # Errors
    /// One of the files cannot be used.
    pub fn open(options: HttpOptions) -> Result<Self, StoreError> {
        Self::open_with(options, Environment::default())
    }

    /// [`open`](Self::open) with another clock, source of randomness and connector.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(options: HttpOptions, parts: Environment) -> Result<Self, StoreError> {
        let connections = Arc::new(Connections::new(options, parts)?);
        Ok(Self { wake_subscription: WakeSubscription::new(Arc::clone(&connections)), connections })
    }
}

/// The path of an operation on a name.
pub(crate) fn lock_path(name: &Name, verb: &str) -> String {
    format!("/v1/locks/{}{verb}", escape_segment(name.as_str()))
}

/// Escapes text as one path segment or one query value.
pub(crate) fn escape_segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT_ESCAPES).to_string()
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore").field("connections", &self.connections).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for HttpStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn describe(&self) -> String {
        self.connections.options.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        acquire::acquire(&self.connections, request, within).await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        renew::renew(&self.connections, batch, within).await
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        release::release(&self.connections, request, within).await
    }

    async fn inspect(&self, name: &Name, _within: Duration) -> Result<LeaseList, StoreError> {
        inspect::inspect(&self.connections, name).await
    }

    async fn list(&self, prefix: &str, limit: usize, _within: Duration) -> Result<LeaseList, StoreError> {
        inspect::list(&self.connections, prefix, limit).await
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        self.wake_subscription.listen(name, token)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }

    async fn promise(&self, _within: Duration) -> Result<PromiseReport, StoreError> {
        promise::promise(&self.connections).await
    }
}
