//! Faults on purpose: how Leasehold's promises are proved.

pub mod chaos;
pub mod fleet;
pub mod history;
pub mod invariant;
#[cfg(feature = "model")]
pub mod model;
pub mod oracle;
pub mod proxy;
pub mod report;
pub mod scenario;
pub mod sim;
