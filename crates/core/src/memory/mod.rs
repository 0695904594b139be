//! The reference store: leases in this process's memory.
//!
//! For tests, for simulation, and for programs that want the policies without a server. Nothing
//! survives the process, so its promise is [`Promise::Volatile`].

mod backend;
mod documents;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;

pub use backend::MemoryBackend;
pub use table::{LeaseTable, WokenWaiter};

use self::documents::DocumentTable;
use crate::clock::SharedClock;
use crate::store::{
    AcquireRequest, AcquireResponse, Capabilities, Documents, LeaseList, Promise, ReleaseRequest,
    ReleaseResponse, RenewRequest, RenewResponse, Store, StoreError, WakeListener, WakeRegistry,
};
use crate::types::{Name, Token};

const CAPABILITIES: Capabilities = Capabilities::new("memory", Promise::Volatile)
    .with_list()
    .with_queue()
    .with_documents(true)
    .with_fence_survives_loss();

/// A store in memory. Clones share its leases.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<LeaseTable>>,
    wakers: Arc<WakeRegistry>,
    documents: Arc<Mutex<DocumentTable>>,
    followers: Arc<WakeRegistry>,
    clock: SharedClock,
}

impl MemoryStore {
    /// An empty store on this clock.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            table: Arc::default(),
            wakers: Arc::default(),
            documents: Arc::default(),
            followers: Arc::default(),
            clock,
        }
    }

    /// Locks the table, to inspect it or to make it lose data.
    pub fn table(&self) -> MutexGuard<'_, LeaseTable> {
        // Every step of the table completes before it can panic, so a poisoned lock hides nothing
        // half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn document_table(&self) -> MutexGuard<'_, DocumentTable> {
        // As for the leases: every step is complete before it can panic.
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of waiters that are subscribed to wake-ups.
    #[must_use]
    pub fn listener_count(&self) -> usize {
        self.wakers.len()
    }

    fn wall_micros(&self) -> u64 {
        // Fences start at the wall clock, so that a new process issues greater ones than the last.
        let wall = self.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(wall.as_micros()).unwrap_or(0)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn describe(&self) -> String {
        "memory:".to_owned()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        _within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        CAPABILITIES.check_acquire(request)?;
        let (now, micros) = (self.clock.now(), self.wall_micros());
        self.table().acquire(request, now, micros)
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        _within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        let now = self.clock.now();
        let mut table = self.table();
        batch
            .iter()
            .map(|renewal| CAPABILITIES.check_names(&renewal.names).map(|()| table.renew(renewal, now)))
            .collect()
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        _within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        CAPABILITIES.check_names(&request.names)?;
        let (now, micros) = (self.clock.now(), self.wall_micros());
        // A waiter of this process removes its entry when it gives up, so every entry is live.
        let (given, woken) = self.table().release(request, now, micros, |_| true);
        if let Some(token) = woken {
            self.wakers.wake(token.random());
        }
        Ok(given)
    }

    async fn inspect(&self, name: &Name, _within: Duration) -> Result<LeaseList, StoreError> {
        let now = self.clock.now();
        Ok(LeaseList::new(self.table().inspect(name, now)))
    }

    async fn list(&self, prefix: &str, limit: usize, _within: Duration) -> Result<LeaseList, StoreError> {
        let now = self.clock.now();
        Ok(self.table().list(prefix, limit, now))
    }

    fn listen(&self, _name: &Name, token: &Token) -> WakeListener {
        self.wakers.listen(token.random())
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}
