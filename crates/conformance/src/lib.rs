//! The conformance suite: the cases that every Leasehold store passes, and helpers for store tests.
//!
//! A store's author writes a [`Fixture`] (how to open a fresh store) and one macro
//! call. Every case becomes its own test, named after the promise it checks. The whole
//! test file of the memory store:
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
//! A store on a server or in files uses `time: Real`, keeps the default [`Fixture::clock`], and
//! lists the cases that its capabilities rule out in `skips`. If processes can share it, it also
//! calls [`taker!`] and implements [`Fixture::taker`].
//!
//! A store with a [`Testbed`](leasehold_core::testbed::Testbed) needs no fixture of its own: it uses
//! [`TestbedFixture`] and [`open_url`].
//!
//! - [`cases`]: the cases, one file for each part of the contract
//! - [`client`]: a test client with one token, in whose terms the cases are written
//! - [`locktaker`] and [`LockProcess`]: a process that acquires leases, to be
//!   killed, stopped and continued
//! - [`wait_for`], [`ChildGuard`], [`free_port`]: for tests that start servers
//!
//! The cases judge responses, not speed. Where a response depends on time and the machine was too
//! slow, the case is repeated with longer times.
//!
//! Terms: see `docs/glossary.md`.

mod case;
pub mod cases;
pub mod client;
mod fixture;
pub mod locktaker;
mod pace;
mod polling;
mod process;
mod suite;
mod taker;
mod testbed_fixture;

pub use case::{Body, CASES, Case, CaseResult, Need, Time, check_skips, find_case, play, skipped_case_ids};
pub use fixture::Fixture;
pub use polling::wait_for;
pub use process::{ChildGuard, free_port};
pub use taker::{LockProcess, TakerCommand, URL_VARIABLE};
pub use testbed_fixture::{TestbedFixture, open_url};

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
