//! A store that passes everything on and remembers what was asked, when, and what the answer was.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{Moment, SharedClock};
use leasehold_core::store::{
    Answer, Ask, Capabilities, Failure, Given, Giving, Lease, Listener, Listing, Promised, Renewal, Renewed,
    SharedStore, Store,
};
use leasehold_core::{Name, Token};

/// One ask as it was sent.
#[derive(Debug, Clone)]
pub struct Asked {
    pub at: Moment,
    pub token: Token,
    pub name: Name,
}

#[derive(Debug, Default)]
struct Seen {
    asked: Vec<Asked>,
    batches: Vec<(Moment, usize)>,
}

#[derive(Debug, Clone)]
pub struct Tap {
    inner: SharedStore,
    clock: SharedClock,
    seen: Arc<Mutex<Seen>>,
}

impl Tap {
    pub fn new(inner: SharedStore, clock: SharedClock) -> Self {
        Self {
            inner,
            clock,
            seen: Arc::default(),
        }
    }

    pub fn store(&self) -> SharedStore {
        Arc::new(self.clone())
    }

    /// Every ask, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().asked.clone()
    }

    /// When renewals were sent, and how many together.
    pub fn batches(&self) -> Vec<(Moment, usize)> {
        self.seen.lock().unwrap().batches.clone()
    }
}

#[async_trait]
impl Store for Tap {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        self.seen.lock().unwrap().asked.push(Asked {
            at: self.clock.now(),
            token: ask.token.clone(),
            name: ask.name.clone(),
        });
        self.inner.acquire(ask, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        let entry = (self.clock.now(), batch.len());
        self.seen.lock().unwrap().batches.push(entry);
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
