//! The control plane that a daemon serves beside its locks.

use leasehold_plane::Plane;
use leasehold_plane::scheduler::Scheduler;

use crate::api::plane::DocumentWatchers;

/// A plane and the scheduler through which its pull workers claim jobs.
#[derive(Debug)]
pub(crate) struct ServedPlane {
    pub(crate) plane: Plane,
    pub(crate) scheduler: Scheduler,
    /// The documents that clients wait for.
    pub(crate) watchers: DocumentWatchers,
}
