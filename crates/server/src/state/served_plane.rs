//! The control plane that a daemon serves beside its locks.

use leasehold_plane::Plane;
use leasehold_plane::scheduler::Scheduler;

/// A plane and the scheduler through which its pull workers claim jobs.
#[derive(Debug)]
pub(crate) struct ServedPlane {
    pub(crate) plane: Plane,
    pub(crate) scheduler: Scheduler,
}
