//! What the layer passes to the handler.

use leasehold_core::{Fence, Name};

/// Carried in the extensions of every request that [`FenceLayer`](super::FenceLayer) has admitted.
/// The handler's own transaction checks it again.
///
/// A handler that requires it (axum: `Extension<Admission>`) cannot be reached by an unfenced
/// request, even in a router whose layer is optional or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// The lock under which the client writes.
    pub name: Name,
    /// The fence of the client's lease.
    pub fence: Fence,
}

impl Admission {
    /// As from a request with these headers, for tests of handlers.
    #[must_use]
    pub const fn new(name: Name, fence: Fence) -> Self {
        Self { name, fence }
    }
}
