//! The trait through which middleware checks a fence, wherever the marks are kept.

use std::future::Future;
use std::sync::Arc;

use leasehold_core::store::StoreError;
use leasehold_core::{Fence, Name};

use crate::{FenceGate, Verdict};

/// Remembers the newest fence of each name. [`http::FenceLayer`](crate::http::FenceLayer) asks it
/// before it lets a request through.
///
/// Implemented by [`FenceGate`] (one process; forgets on restart) and
/// [`redis::RedisFence`](crate::redis::RedisFence) (shared by all processes). For a database of
/// your own, implement it with that database's transaction.
pub trait Marks: Send + Sync + 'static {
    /// Compares and remembers, atomically: refuses an older fence, admits an equal or newer one.
    ///
    /// Do not turn a [`StoreError`] into a refusal, nor into an admission.
    fn admit(&self, name: &Name, fence: Fence) -> impl Future<Output = Result<Verdict, StoreError>> + Send;
}

impl Marks for FenceGate {
    async fn admit(&self, name: &Name, fence: Fence) -> Result<Verdict, StoreError> {
        Self::admit(self, name, fence)
    }
}

impl<M: Marks> Marks for Arc<M> {
    fn admit(&self, name: &Name, fence: Fence) -> impl Future<Output = Result<Verdict, StoreError>> + Send {
        M::admit(self, name, fence)
    }
}
