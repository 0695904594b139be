//! Stores made of another store: each passes every verb on and changes one thing.

#[cfg(any(test, feature = "testing"))]
mod chaos;
#[cfg(any(test, feature = "testing"))]
mod fault;
mod prefix;

#[cfg(any(test, feature = "testing"))]
pub use chaos::Chaos;
#[cfg(any(test, feature = "testing"))]
pub use fault::{Fault, Faults, Odds, Verb};
pub use prefix::Prefixed;
