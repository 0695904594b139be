//! Counts the acquire requests of a client. Only this count shows a thundering herd: woken waiters
//! that find the lock busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, Documents, LeaseList, PromiseReport, ReleaseRequest,
    ReleaseResponse, RenewRequest, RenewResponse, SharedStore, Store, StoreError, WakeListener,
};
use leasehold_core::{Name, Token};

/// A store wrapper that counts acquire requests.
#[derive(Debug)]
pub(super) struct CountingStore {
    inner: SharedStore,
    requests: Arc<AtomicU64>,
}

impl CountingStore {
    /// Wraps a store. Returns the wrapper and its counter.
    pub(super) fn wrap(inner: SharedStore) -> (SharedStore, Arc<AtomicU64>) {
        let asks = Arc::new(AtomicU64::new(0));
        let counted = Self { inner, requests: Arc::clone(&asks) };
        (Arc::new(counted), asks)
    }
}

#[async_trait]
impl Store for CountingStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.inner.documents()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.inner.acquire(request, within).await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        self.inner.renew(batch, within).await
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        self.inner.release(request, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        self.inner.inspect(name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        self.inner.list(prefix, limit, within).await
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        self.inner.listen(name, token)
    }

    async fn promise(&self, within: Duration) -> Result<PromiseReport, StoreError> {
        self.inner.promise(within).await
    }
}
