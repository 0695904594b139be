//! The reference store: leases in this process's memory.
//!
//! For tests, for simulation, and for programs that want the policies without a server. Nothing survives the
//! process, so its promise is [`Promise::Volatile`].

mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;

pub use table::{Table, Woken};

use crate::clock::SharedClock;
use crate::store::{
    Answer, Ask, Capabilities, Failure, Given, Giving, Lease, Listener, Listing, Promise, Renewal, Renewed,
    Store, Wakers,
};
use crate::word::{Name, Token};

/// Leases in memory. Clones share them.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<Table>>,
    wakers: Arc<Wakers>,
    clock: SharedClock,
}

impl MemoryStore {
    /// An empty store on this clock.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            table: Arc::default(),
            wakers: Arc::default(),
            clock,
        }
    }

    /// The table itself: to look at it, or to make it forget.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        // Every step of the table is finished before it can panic: a poisoned lock hides nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many waiters listen for hints.
    #[must_use]
    pub fn listening(&self) -> usize {
        self.wakers.len()
    }

    fn micros(&self) -> u64 {
        let wall = self.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(wall.as_micros()).unwrap_or(0)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory", Promise::Volatile)
            .with_list()
            .with_queue()
            .with_fence_survives_loss()
    }

    fn describe(&self) -> String {
        "memory:".to_owned()
    }

    async fn acquire(&self, ask: &Ask, _within: Duration) -> Result<Answer, Failure> {
        let (now, micros) = (self.clock.now(), self.micros());
        self.table().acquire(ask, now, micros)
    }

    async fn renew(&self, batch: &[Renewal], _within: Duration) -> Vec<Result<Renewed, Failure>> {
        let now = self.clock.now();
        let mut table = self.table();
        batch
            .iter()
            .map(|renewal| Ok(table.renew(renewal, now)))
            .collect()
    }

    async fn release(&self, giving: &Giving, _within: Duration) -> Result<Given, Failure> {
        let (now, micros) = (self.clock.now(), self.micros());
        // A waiter in this process is alive as long as its entry is: it removes it when it gives up.
        let (given, woken) = self.table().release(giving, now, micros, |_| true);
        if let Some(token) = woken {
            self.wakers.wake(token.random());
        }
        Ok(given)
    }

    async fn inspect(&self, name: &Name, _within: Duration) -> Result<Option<Lease>, Failure> {
        let now = self.clock.now();
        Ok(self.table().inspect(name, now))
    }

    async fn list(&self, prefix: &str, limit: usize, _within: Duration) -> Result<Listing, Failure> {
        let now = self.clock.now();
        Ok(self.table().list(prefix, limit, now))
    }

    fn listen(&self, _name: &Name, token: &Token) -> Listener {
        self.wakers.listen(token.random())
    }
}
