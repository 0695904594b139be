//! The daemon that serves a store, for requests that go beyond a store's: events, policies, breaks, jobs.

use leasehold::StoreUrl;
use leasehold::http::{DaemonClient, HttpOptions};
use leasehold::store::StoreError;

/// A client of the daemon; `None` if no daemon serves this store.
pub(crate) fn open_client(url: &StoreUrl) -> Result<Option<DaemonClient>, StoreError> {
    let options = url.daemon_url().map(HttpOptions::parse).transpose()?;
    options.map(DaemonClient::open).transpose()
}
