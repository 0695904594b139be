//! The interface to a storage engine: one small trait.
//!
//! A store answers one request at a time. It has no retry loop, no sleep, no metrics and no policy;
//! the rest of this crate waits and decides. Contention and *not owned* are responses. A
//! [`StoreError`] says that the call failed, and whether it may have taken effect.
//!
//! The exact contract stands at each operation of [`Store`]; `leasehold-conformance` checks it.

mod backend;
mod bounded_call;
mod capability;
mod documents;
mod error;
mod finding;
mod redact;
mod requests;
mod responses;
mod wake;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use backend::{Backend, BackendInfo, StoreLocation};
pub use bounded_call::bounded_call;
pub use capability::{Capabilities, Promise, PromiseReport};
pub use documents::{
    Document, DocumentList, DocumentOutcome, DocumentQuery, DocumentRead, DocumentWrite, Documents,
    ExpectedVersion, MAX_DOCUMENT_BYTES, MAX_DOCUMENT_TTL, MAX_DOCUMENTS_LISTED,
};
pub use error::{StoreError, StoreErrorKind};
pub use finding::{Examination, Finding, Severity};
pub use redact::redact;
pub use requests::{AcquireRequest, Mode, ReleaseAuthority, ReleaseRequest, RenewRequest};
pub use responses::{AcquireResponse, BusyLease, Grant, Lease, LeaseList, ReleaseResponse, RenewResponse};
pub use wake::{WakeListener, WakeRegistry};

use crate::types::{Name, Token};

/// The default of [`Capabilities::claim_ttl`]: several round trips, so that a live waiter confirms in
/// time.
pub const HANDOVER_CLAIM_TTL: Duration = Duration::from_millis(500);

/// How long a store refuses an undone token, so that a late acquire of it is not granted. Longer
/// than any request of this client can be delayed.
pub const TOMBSTONE_TTL: Duration = Duration::from_secs(60);

/// A shared handle to a store.
pub type SharedStore = Arc<dyn Store>;

/// A storage engine for leases. Object safe; adapters wrap another store and pass every operation
/// on.
///
/// All operations may run concurrently, and their futures may be dropped at any await point; a
/// dropped call counts as *unknown*. No operation may take much longer than `within`. The caller
/// enforces that limit too, but a store that stops earlier can report *definitely not done*.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// The abilities of this store. Constant for the life of the value.
    fn capabilities(&self) -> Capabilities;

    /// The location for people: a URL without secrets.
    fn describe(&self) -> String;

    /// Requests the lease, as one atomic step. What the store does not serve is refused by
    /// [`Capabilities::check_acquire`]. Of several names, all are granted with one fence, or none is
    /// changed.
    ///
    /// 1. The token was undone (a [`ReleaseRequest`] with a tombstone): [`AcquireResponse::Void`],
    ///    nothing changes.
    /// 2. The live lease already has this token (a retry, or a waiter that confirms its handover):
    ///    [`AcquireResponse::Granted`] with the *same* fence. The TTL starts again but never
    ///    shortens the lease.
    /// 3. The live lease has another token: [`AcquireResponse::Busy`]. With `queue` set, the token is
    ///    registered as the last waiter; a retry keeps its position and extends the registration.
    /// 4. Otherwise the lease is granted for the request's TTL plus lock delay. Its fence is greater
    ///    than the request's `floor` and than every fence granted for any of the names before. The
    ///    token's waiter entry is removed.
    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError>;

    /// Extends leases, each only if its live lease has exactly this token *and* this fence. An
    /// expired lease is never revived, even if its record still exists, and a live one is never
    /// shortened. Returns one result per item, in order. An item that
    /// [`Capabilities::check_names`] refuses does not affect the others.
    async fn renew(&self, batch: &[RenewRequest], within: Duration)
    -> Vec<Result<RenewResponse, StoreError>>;

    /// Ends a lease, only if the [`ReleaseAuthority`] matches the live lease. The token's waiter
    /// entry is removed in any case, and a tombstone is left if requested.
    ///
    /// If waiters are queued, the lease is granted at once to the first live one for
    /// [`Capabilities::claim_ttl`], and only that waiter is notified. The new fence is above the
    /// floor of the waiter's last request.
    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError>;

    /// Every live lease of a name: none, one, or several if it is held shared or by permits.
    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError>;

    /// Live leases whose names start with `prefix`, sorted by name, at most `limit`.
    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        let _ = (prefix, limit, within);
        Err(StoreError::not_done(StoreErrorKind::Unsupported, "this store cannot list its leases"))
    }

    /// Subscribes a waiting token to wake-ups. The caller subscribes *before* its first queued
    /// request, so that no wake-up between request and wait is lost. A wake-up means "retry", never
    /// "granted". A store without wake-ups returns a listener that is never notified.
    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        let _ = (name, token);
        WakeListener::never()
    }

    /// The documents of this store, if it has any: [`Capabilities::documents`] says so too.
    fn documents(&self) -> Option<&dyn Documents> {
        None
    }

    /// The promise about acknowledged leases in the current configuration, with the findings that
    /// limit it. The client checks it before it serves a class whose `requires` is stronger than
    /// `any`.
    async fn promise(&self, within: Duration) -> Result<PromiseReport, StoreError> {
        let _ = within;
        Ok(PromiseReport::new(self.capabilities().promise))
    }
}
