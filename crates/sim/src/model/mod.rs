//! A model of the protocol: every order of events within bounds, not a sample of them.
//!
//! Two or three clients want one name. Time is discrete, no participant can read it, and every clock
//! is wrong in its own way. Messages are late, lost or repeated, clients pause, the store loses data.
//! The checker ([stateright]) explores *all* interleavings within a configuration's bounds, and
//! checks every state for a broken promise.
//!
//! | module | content |
//! |---|---|
//! | [`config`] | a bounded world: sizes, faults, rules, expectation |
//! | [`catalogue`] | the configurations that must hold and those that must break |
//! | [`state`], [`network`] | one state of the world |
//! | [`store`], [`client`] | the rules of the protocol as steps |
//! | [`protocol`] | which steps are possible |
//! | [`promise`] | I1 to I6 and L1 |
//! | [`coverage`] | which events a run has reached |
//! | [`symmetry`] | states that differ only in the numbering of clients |
//! | [`describe`], [`check`] | running a configuration and describing a counterexample |
//!
//! The model shares no code with the client, on purpose. It is written from the semantics, and tests
//! compare its deadline arithmetic and its store with the real ones. It models the `fence` and the
//! `continue` class and polling acquires. It leaves out what does not affect these promises (queues,
//! batches, breaker, backoff), and fail-open holds, which promise nothing to others.

pub mod catalogue;
pub mod check;
pub mod client;
pub mod config;
pub mod coverage;
pub mod describe;
pub mod network;
pub mod promise;
pub mod protocol;
pub mod state;
pub mod store;
pub mod symmetry;
