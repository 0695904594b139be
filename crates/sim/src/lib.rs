//! Runs the real client in a simulated world, once per seed.
//!
//! Each process has its own runtime and its own drifting clock. It runs `Locks` with keeper, gate,
//! breaker, debt collector and policy task against a store with Redis or SQLite semantics.
//!
//! Optionally the real daemon stands in front of the store. The same clients then use the real HTTP
//! store over a simulated network. Some clients let the daemon keep their holds; others keep their
//! leases with plain HTTP. The daemon is paused, killed and restarted too.
//!
//! A [`SimPlan`] is drawn from the seed: clients, classes and faults. Messages are lost, late,
//! repeated or refused. Processes are paused, killed and shut down. Stores are away, full, flushed,
//! or fail over with loss. Clocks step, operators break leases and override policies. Then the
//! faults end and everything must recover.
//!
//! A run produces a [history](leasehold_drill::history) in true time. The
//! [oracle](leasehold_drill::oracle) that judges the drills judges it. A plan that breaks a promise is
//! [shrunk](shrink) to a short one. Each [`Mistake`] reintroduces a known bug that the simulation must
//! find.
//!
//! `model` (a feature) describes the protocol as a state machine and explores it exhaustively.
//!
//! For development only: no crate of the product depends on this one. `cargo xtask simulate` runs
//! histories, `scripts/proof model` runs the model.
//!
//! Terms: see `docs/glossary.md`.

mod campaign;
mod class;
mod client_protocol;
mod client_setup;
mod clock;
mod daemon;
mod daemon_disk;
mod daemon_holds;
mod daemon_network;
mod daemon_network_faults;
mod drift;
mod engine;
mod execution;
mod fault;
mod fault_injection;
mod history_buffer;
mod http_client;
mod http_leases;
mod machines;
mod mistake;
#[cfg(feature = "model")]
pub mod model;
mod operator;
mod orphans;
mod panics;
mod plan;
mod process;
mod queue_entries;
mod random;
mod reachability;
mod recovery;
mod shrink;
mod simulation;
mod stepped_runtime;
mod store;
mod store_network;
mod stream;
mod target;
mod worker;
mod world;

pub use campaign::{Campaign, FailedSeed, Progress, find_unrepeatable_seed, run_campaign};
pub use class::ClassPlan;
pub use drift::{MS, Nanos, SEC};
pub use fault::{SimFault, SimScheduledFault};
pub use mistake::Mistake;
pub use orphans::{AcquireKey, OrphanStats, OrphanTracker, ProcessLife};
pub use plan::{DaemonPlan, FaultOdds, Route, SimPlan, Topology};
pub use queue_entries::QueueEntries;
pub use reachability::Reachability;
pub use shrink::{ShrunkPlan, shrink};
pub use simulation::{SimRun, run_plan};
