//! Faults on purpose: how Leasehold's promises are proved.

#[cfg(feature = "drills")]
pub mod chaos;
#[cfg(feature = "drills")]
pub mod fleet;
pub mod history;
pub mod invariant;
#[cfg(feature = "model")]
pub mod model;
pub mod oracle;
pub mod proxy;
#[cfg(feature = "drills")]
pub mod report;
#[cfg(feature = "drills")]
pub mod scenario;
#[cfg(feature = "drills")]
pub mod sim;
