//! The store itself: each verb of the contract as one request. What it says stands in the file of that name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    Answer, Ask, Capabilities, Failure, Given, Giving, Lease, Listener, Listing, Promise, Promised, Renewal,
    Renewed, Store,
};
use leasehold_core::{Name, Token};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::connection::Connections;
use crate::options::HttpOptions;
use crate::parts::Parts;
use crate::wake::Ear;
use crate::{acquire, inspect, promise, release, renew};

/// What a path segment may have as it is; everything else is encoded, so that no name can leave its segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// Leases of a daemon's store.
///
/// Nothing is connected to before it is asked: a daemon that is down shows then, as *unreachable*, and the class decides.
pub struct HttpStore {
    connections: Arc<Connections>,
    ear: Ear,
}

impl HttpStore {
    /// Reads the files that the options name, and gets ready.
    ///
    /// # Errors
    /// One of the files cannot be used.
    pub fn open(options: HttpOptions) -> Result<Self, Failure> {
        Self::open_with(options, Parts::default())
    }

    /// [`open`](Self::open) with another clock, source of chance and way to connect than the machine's.
    ///
    /// # Errors
    /// As its.
    pub fn open_with(options: HttpOptions, parts: Parts) -> Result<Self, Failure> {
        let connections = Arc::new(Connections::new(options, parts)?);
        Ok(Self {
            ear: Ear::new(Arc::clone(&connections)),
            connections,
        })
    }
}

/// The route of a verb on a name.
pub(crate) fn route(name: &Name, verb: &str) -> String {
    format!("/v1/locks/{}{verb}", segment(name.as_str()))
}

/// Text as one segment of a path or one value of a query.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for HttpStore {
    /// What a daemon can do at best; what its store cannot, it refuses as *unsupported* when asked. So a daemon that is
    /// down need not be asked first, and fail-open classes work without it.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("http", Promise::Consensus)
            .with_list()
            .with_queue()
            .with_cross_process()
            .with_fence_survives_loss()
    }

    fn describe(&self) -> String {
        self.connections.options.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        acquire::acquire(&self.connections, ask, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        renew::renew(&self.connections, batch, within).await
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        release::release(&self.connections, giving, within).await
    }

    async fn inspect(&self, name: &Name, _within: Duration) -> Result<Option<Lease>, Failure> {
        inspect::inspect(&self.connections, name).await
    }

    async fn list(&self, prefix: &str, limit: usize, _within: Duration) -> Result<Listing, Failure> {
        inspect::list(&self.connections, prefix, limit).await
    }

    fn listen(&self, name: &Name, token: &Token) -> Listener {
        self.ear.listen(name, token)
    }

    async fn promise(&self, _within: Duration) -> Result<Promised, Failure> {
        promise::promise(&self.connections).await
    }
}
