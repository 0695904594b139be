//! The one question that middleware asks, whatever remembers the answer.

use std::future::Future;
use std::sync::Arc;

use leasehold_core::store::Failure;
use leasehold_core::{Fence, Name};

use crate::{FenceGate, Verdict};

/// Something that remembers the newest fence of each name. [`http::FenceLayer`](crate::http::FenceLayer) asks it
/// before it lets a request through.
///
/// Implemented by [`FenceGate`] (this process only; forgets on restart) and
/// [`redis::RedisFence`](crate::redis::RedisFence) (shared by all processes). For a database of your own,
/// implement it with that database's transaction.
pub trait Marks: Send + Sync + 'static {
    /// Compares and remembers, as one atomic step: refuses an older fence, admits an equal or newer one.
    ///
    /// A [`Failure`] must not be turned into a refusal, nor into an admission.
    fn admit(&self, name: &Name, fence: Fence) -> impl Future<Output = Result<Verdict, Failure>> + Send;
}

impl Marks for FenceGate {
    async fn admit(&self, name: &Name, fence: Fence) -> Result<Verdict, Failure> {
        Self::admit(self, name, fence)
    }
}

impl<M: Marks> Marks for Arc<M> {
    fn admit(&self, name: &Name, fence: Fence) -> impl Future<Output = Result<Verdict, Failure>> + Send {
        M::admit(self, name, fence)
    }
}
