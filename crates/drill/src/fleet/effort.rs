//! How often a client asks its store: a herd shows here and nowhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    Answer, Ask, Capabilities, Failure, Given, Giving, Lease, Listener, Listing, Promised, Renewal, Renewed,
    SharedStore, Store,
};
use leasehold_core::{Name, Token};

/// A store that counts the asks for leases that pass through it.
#[derive(Debug)]
pub(super) struct Counted {
    inner: SharedStore,
    asks: Arc<AtomicU64>,
}

impl Counted {
    /// Counts what goes to this store, and where the count is.
    pub(super) fn around(inner: SharedStore) -> (SharedStore, Arc<AtomicU64>) {
        let asks = Arc::new(AtomicU64::new(0));
        let counted = Self {
            inner,
            asks: Arc::clone(&asks),
        };
        (Arc::new(counted), asks)
    }
}

#[async_trait]
impl Store for Counted {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        self.asks.fetch_add(1, Ordering::Relaxed);
        self.inner.acquire(ask, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        self.inner.renew(batch, within).await
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        self.inner.release(giving, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        self.inner.inspect(name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        self.inner.list(prefix, limit, within).await
    }

    fn listen(&self, name: &Name, token: &Token) -> Listener {
        self.inner.listen(name, token)
    }

    async fn promise(&self, within: Duration) -> Result<Promised, Failure> {
        self.inner.promise(within).await
    }
}
