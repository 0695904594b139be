//! One body of cases that every Leasehold store passes, and what its tests need besides.
//!
//! A store's author writes a [`Fixture`] (how to get at a fresh store) and one macro call; every case becomes a test
//! of its own, named after the promise it checks. The memory store's whole test file:
//!
//! ```
//! use std::sync::Arc;
//!
//! use leasehold_conformance::Fixture;
//! use leasehold_core::clock::{RuntimeClock, SharedClock};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::store::SharedStore;
//!
//! struct Memory {
//!     store: MemoryStore,
//!     clock: SharedClock,
//! }
//!
//! #[async_trait::async_trait]
//! impl Fixture for Memory {
//!     async fn open(&self) -> anyhow::Result<SharedStore> {
//!         Ok(Arc::new(self.store.clone()))
//!     }
//!
//!     fn clock(&self) -> SharedClock {
//!         Arc::clone(&self.clock)
//!     }
//! }
//!
//! fn memory() -> Memory {
//!     let clock = RuntimeClock::shared();
//!     Memory { store: MemoryStore::new(Arc::clone(&clock)), clock }
//! }
//!
//! leasehold_conformance::suite! {
//!     time: Virtual,
//!     fixture: memory(),
//!     skips: ["crossprocess::*"],
//! }
//! # fn main() {}
//! ```
//!
//! A store on a server or in files says `time: Real`, leaves [`Fixture::clock`] alone, and names what its
//! capabilities rule out in `skips`. If processes can share it, it also calls [`taker!`] and answers
//! [`Fixture::taker`].
//!
//! - [`cases`]: the cases, a file for each part of the contract
//! - [`locktaker`] and [`Taker`]: a process that takes leases, to be killed, stopped and continued
//! - [`wait_for`], [`ChildGuard`], [`free_port`]: for tests that start servers
//!
//! What the cases judge is answers, not speed: where an answer depends on time, a case that a slow machine has made
//! meaningless is repeated with more of it.

pub mod asker;
mod case;
pub mod cases;
mod fixture;
pub mod locktaker;
mod pace;
mod patience;
mod process;
mod suite;
mod taker;

pub use case::{Body, CASES, Case, Need, Time, Verdict, check_skips, find, play, skipped};
pub use fixture::Fixture;
pub use patience::wait_for;
pub use process::{ChildGuard, free_port};
pub use taker::{Taker, TakerCommand, URL_VARIABLE};
