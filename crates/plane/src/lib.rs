//! The control plane on top of the locks: jobs, workflow runs, approvals and the loops that repair them.
//!
//! Several replicas share one store. Each write is one conditional step in which the store checks
//! transition, version, fence and idempotency key. Everything that writes, publishes or acknowledges
//! takes the [`Hold`](leasehold_core::Hold) it acts under. So each job ends exactly once, even if
//! replicas die, pause or wake up too late.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Locks, clock::BootClock, memory::MemoryStore};
//! use leasehold_plane::{JobSpec, Plane, Replica, Settings, Work};
//! use leasehold_plane::{store::memory::MemoryPlane, work::Executors};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build()?;
//! let plane = Plane::new(locks, Arc::new(MemoryPlane::new(BootClock::shared())), Settings::default())?;
//! let replica = Replica::start(plane.clone(), Executors::default());
//!
//! let job = plane.submit(JobSpec::new(Work::Exec(vec!["true".into()]))).await?.job;
//! println!("job {} is {}", job.id, job.state);
//! replica.stop(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! - [`Plane`]: the client API: submit, read, cancel and replay jobs, start runs.
//! - [`state`]: the table of job states and their transitions.
//! - [`job`]: the job document and each step of its life as a pure function.
//! - [`workflow`]: runs as graphs of steps, advanced by a pure function; [`workflow::Engine`] applies it.
//! - [`approval`]: a person approves, rejects or repairs a job.
//! - [`scheduler`]: takes messages about jobs, locks each job and dispatches it.
//! - [`work`]: executors for commands, in-process handlers and pull workers.
//! - [`loops`]: background repair of stuck jobs and runs.
//! - [`FencedWriter`]: the only path by which a replica writes, sends or acknowledges.
//! - [`store`]: documents, events and messages in memory, SQLite or Redis.
//! - [`Replica`]: scheduler, engine and loops in one process.
//! - [`events`], [`metrics`]: the event stream, and the metrics derived from it.
//! - [`view`]: jobs, runs and events as JSON documents.
//!
//! **Guaranteed**: a job and a step end once; no submitted job is lost; a crashed replica's jobs are
//! taken over within the lock's TTL plus one poll. **Not guaranteed**: that work *begins* only once. A
//! replica that dies takes its attempt with it, and another replica starts a new one. Side effects of
//! the work should therefore carry the fence or be idempotent.
//!
//! Terms: see `docs/glossary.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod approval;
mod backends;
mod cancel_request;
mod error;
pub mod events;
mod fenced_writer;
pub mod job;
pub mod loops;
pub mod metrics;
mod plane;
mod quota;
mod replica;
pub mod scheduler;
mod settings;
mod span;
pub mod state;
pub mod store;
#[cfg(feature = "testing")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
pub mod testing;
pub mod view;
pub mod work;
pub mod workflow;

pub use backends::open_store;
#[cfg(feature = "sqlite")]
pub use backends::plane_file_path;
pub use error::PlaneError;
pub use fenced_writer::FencedWriter;
pub use job::{Job, JobSpec, Work};
pub use plane::{CancelResponse, Plane, SubmitResponse};
pub use quota::PlaneQuotas;
pub use replica::{Replica, StopReport};
pub use settings::{Settings, StateTimeouts};
pub use span::Span;
pub use state::JobState;

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
