//! The protocol's model: every order of events within bounds, not some of them.
//!
//! Two or three clients want one name. Time is discrete and nobody can read it: every clock is wrong in its own way.
//! Messages are late, lost or repeated, clients pause, the store forgets. The checker ([stateright]) walks through
//! *all* interleavings of that within a configuration's bounds and looks at every state for a broken promise.
//!
//! | file | what |
//! |---|---|
//! | [`config`] | a bounded world: sizes, faults, rules, expectation |
//! | [`catalogue`] | the configurations: those that must hold and those that must break |
//! | [`state`], [`network`] | one instant of the world |
//! | [`store`], [`client`] | the protocol's sentences as steps |
//! | [`protocol`] | which steps are possible |
//! | [`promise`] | I1 to I6 and L1 |
//! | [`sight`] | what a run has met: nothing holds for want of events |
//! | [`symmetry`] | clients are alike |
//! | [`words`], [`check`] | running it, and telling a counterexample |
//!
//! The model shares no code with the client it models, on purpose: it is written from the semantics, and the tests
//! compare its deadline arithmetic and its store with the real ones. It models the `fence` and the `continue` class and
//! polling acquires; it leaves out what has no influence on these promises (queues, batches, breaker, back-off) and
//! fail-open holds, which promise nothing to others.

pub mod catalogue;
pub mod check;
pub mod client;
pub mod config;
pub mod network;
pub mod promise;
pub mod protocol;
pub mod sight;
pub mod state;
pub mod store;
pub mod symmetry;
pub mod words;

#[cfg(test)]
mod likeness;
