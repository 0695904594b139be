//! Stores that wrap another store: each passes every operation on and changes one thing.

#[cfg(any(test, feature = "testing"))]
mod fault;
#[cfg(any(test, feature = "testing"))]
mod faulty_store;
mod prefix;

#[cfg(any(test, feature = "testing"))]
pub use fault::{Fault, FaultOdds, FaultScript, StoreOp};
#[cfg(any(test, feature = "testing"))]
pub use faulty_store::FaultyStore;
pub use prefix::PrefixedStore;
